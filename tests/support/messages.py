"""What an error must say, apart from its wording."""

from __future__ import annotations

import re

NAMING = r"(?s)\A"  # how the patterns of `naming` begin


def naming(*parts: object, without: str | None = None) -> str:
    """A pattern for `match=`: all of the parts, as whole words, in any order.

    A part is the name of an argument, a file or a layer, or a value that was given. A string
    stands for itself, anything else for its repr; a compiled pattern is searched for as it is.
    `without` is a part that the message must not have.
    """
    wanted = "".join(f"(?=.*{_pattern(part)})" for part in parts)
    unwanted = f"(?!.*{_pattern(without)})" if without else ""
    return NAMING + unwanted + wanted


def _pattern(part: object) -> str:
    if isinstance(part, re.Pattern):
        return f"(?:{part.pattern})"
    text = part if isinstance(part, str) else repr(part)
    before = r"(?<!\w)(?<!\d\.)" if re.match(r"\w", text) else ""
    after = r"(?!\w|\.\d)" if re.search(r"\w$", text) else ""
    return before + re.escape(text) + after


def says(text: str, *parts: object, without: str | None = None) -> bool:
    """Whether a log line or an output has all of the parts; see `naming`."""
    return re.search(naming(*parts, without=without), text) is not None
