"""Read JSON of a known form piece by piece.

`json.loads` makes objects of everything before a check can refuse it: a list takes 22 times the
memory of its text `[],`. This scanner keeps only what its caller asks for, and stops at the first
token that the caller does not expect.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator

from chita.errors import ChitaError

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(0|[1-9]\d{0,18})(?![\d.eE])")  # at most 64 bits, without a sign
LONGEST_STRING = 1 << 16
_LONGEST_TEXT = 12 * LONGEST_STRING + 2  # a character takes up to two escapes such as \\u00e9
_DECODER = json.JSONDecoder()
_AHEAD = 1 << 12  # characters that are read before a token, which only a string may exceed


class JsonScanner:
    """A position in JSON text, of which only a window is in memory.

    Args:
        pieces: the text in UTF-8, in pieces.
        what: the name of the text, for error messages.
    """

    def __init__(self, pieces: Iterable[bytes], what: str) -> None:
        self._pieces = codecs.iterdecode(pieces, "utf-8")
        self._what = what
        self._text = ""
        self._at = 0

    def take(self, token: str) -> bool:
        """Return whether the next token is this one, and move behind it if so."""
        self._to_token()
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def expect(self, token: str) -> None:
        """Move behind the next token, which must be this one; "" expects the end of the text."""
        if not self.take(token) or (not token and self._at < len(self._text)):
            raise self._error(f"expected {token or 'the end'!r}")

    def items(self, opening: str, closing: str) -> Iterator[None]:
        """Yield before each item between two brackets; the caller reads the item."""
        self.expect(opening)
        if self.take(closing):
            return
        yield
        while not self.take(closing):
            self.expect(",")
            yield

    def number(self) -> int:
        """Read a whole number of at least 0."""
        self._to_token()
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            raise self._error("expected a whole number")
        self._at = found.end()
        return int(found[0])

    def string(self) -> str:
        """Read a string of at most LONGEST_STRING characters."""
        self._to_token()
        if not self._text.startswith('"', self._at):
            raise self._error("expected a string")
        while True:
            try:
                value, self._at = _DECODER.raw_decode(self._text, self._at)
                return str(value)
            except json.JSONDecodeError as error:  # unless the window ends within the string
                left = len(self._text) - self._at
                if left > _LONGEST_TEXT or not self._read_on(2 * left):
                    raise self._error(error.msg) from error

    def key(self) -> str:
        """Read the key of an object and the colon behind it."""
        name = self.string()
        self.expect(":")
        return name

    def _to_token(self) -> None:
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at + _AHEAD <= len(self._text) or not self._read_on(_AHEAD):
                return

    def _read_on(self, wanted: int) -> bool:
        """Forget the text before the position, and read on; return whether there was more."""
        self._text, self._at = self._text[self._at :], 0
        before = len(self._text)
        try:
            while len(self._text) < wanted and (piece := next(self._pieces, None)) is not None:
                self._text += piece
        except UnicodeDecodeError as error:
            raise self._error(str(error)) from error
        return len(self._text) > before

    def _error(self, reason: str) -> ChitaError:
        found = self._text[self._at : self._at + 20]
        return ChitaError(f"{self._what} is not valid JSON of its form: {reason} at {found!r}")
