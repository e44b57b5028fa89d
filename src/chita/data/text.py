"""Text files as sequences of tokens, to calibrate and to measure language models on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.files.regular import read_regular

CONTEXT = 1024  # tokens in a sequence, unless the model takes fewer
SEQUENCES = 128  # sequences to calibrate on
_MOST_BYTES = 10**9  # of a text, whose tokens take many times as much

Encode = Callable[[str], Sequence[int]]  # text -> token ids


@dataclass(frozen=True)
class TextSize:
    """How a text is cut, and how much of it is used for calibration.

    Attributes:
        context: the tokens in a sequence; None for CONTEXT, or the most that the model takes.
        sequences: the most sequences to calibrate on.
        tokens: the most tokens of a test text; None for all.
    """

    context: int | None = None
    sequences: int = SEQUENCES
    tokens: int | None = None


DEFAULT_SIZE = TextSize()


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text.

    Attributes:
        name: the name of the text, for messages.
        ids: the token ids, (tokens,) int64.
    """

    name: str
    ids: Tensor

    def first(self, count: int | None) -> Tokens:
        """Return the first tokens, at most `count` of them; None for all."""
        return Tokens(self.name, self.ids[:count])

    def sequences(self, context: int) -> Tensor:
        """Cut the text into sequences without overlap, (sequences, context); the rest is left out.

        Raises:
            ChitaError: the text is too short for one sequence.
        """
        count = len(self.ids) // context
        if not count:
            raise ChitaError(
                f"{self.name} has {len(self.ids)} tokens, too few for one sequence of {context}: "
                "give a longer text, or a smaller context (--context)"
            )
        return self.ids[: count * context].view(count, context)


def read_tokens(path: Path, encode: Encode) -> Tokens:
    """Read a text file in UTF-8, and convert it to tokens.

    Args:
        path: the file.
        encode: converts a text to token ids.

    Raises:
        ChitaError: the file cannot be read, or is not UTF-8.
    """
    return Tokens(str(path), torch.tensor(list(encode(read_text(path))), dtype=torch.int64))


def read_text(path: Path) -> str:
    """Read a text file in UTF-8.

    Raises:
        ChitaError: the file cannot be read, or is not UTF-8.
    """
    try:
        return read_regular(path, _MOST_BYTES).decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise ChitaError(f"cannot read the text {path}: {error}") from error
    except UnicodeDecodeError as error:
        raise ChitaError(
            f"{path} is not a text in UTF-8: byte {error.start} is invalid; convert it to UTF-8"
        ) from error


def choose_sequences(sequences: Tensor, count: int, seed: int) -> Tensor:
    """Draw at most `count` of the sequences, (S, context), in random order."""
    order = torch.randperm(len(sequences), generator=torch.Generator().manual_seed(seed))
    return sequences[order[:count]]
