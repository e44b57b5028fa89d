"""A set of positions in whichever code is smaller."""

from __future__ import annotations

from dataclasses import dataclass

from chita.files.packed import bitmask, deltas
from chita.files.packed.bitmask import Positions

_READERS = {"mask": bitmask.decode, "deltas": deltas.decode}
FORMS = frozenset(_READERS)


@dataclass(frozen=True)
class Code:
    """How a set of positions is stored.

    Attributes:
        form: one of `FORMS`.
        count: positions in the set.
        length: bytes of the code.
    """

    form: str
    count: int
    length: int


def encode(positions: Positions, size: int) -> tuple[Code, bytes]:
    """The smaller code of `positions` (increasing, in [0, size)), and what it is."""
    # n runs take at least size / 2^k + n k bits: from half of the places on, never less than size.
    if 2 * len(positions) < size:
        content = deltas.encode(positions, size)
        if len(content) < bitmask.mask_bytes(size):
            return Code("deltas", len(positions), len(content)), content
    content = bitmask.encode(positions, size)
    return Code("mask", len(positions), len(content)), content


def decode(code: Code, content: memoryview, size: int) -> Positions:
    """The positions, shape (count,)."""
    return _READERS[code.form](content, code.count, size)
