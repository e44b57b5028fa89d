"""A set of positions as a bit mask or as coded differences, whichever is smaller."""

from __future__ import annotations

from dataclasses import dataclass

from chita.files.packed import bitmask, deltas
from chita.files.packed.bitmask import Positions

_READERS = {"mask": bitmask.decode, "deltas": deltas.decode}
FORMS = frozenset(_READERS)


@dataclass(frozen=True, slots=True)
class Code:
    """The code of a set of positions.

    Attributes:
        form: one of `FORMS`.
        count: the number of positions.
        length: the bytes of the code.
    """

    form: str
    count: int
    length: int


def encode(positions: Positions, size: int) -> tuple[Code, bytes]:
    """Return the smaller code of `positions` (increasing, in [0, size)) and its description."""
    # n runs take at least size / 2^k + n k bits: from half of the places on, at least `size`.
    if 2 * len(positions) < size:
        content = deltas.encode(positions, size)
        if len(content) < bitmask.mask_bytes(size):
            return Code("deltas", len(positions), len(content)), content
    content = bitmask.encode(positions, size)
    return Code("mask", len(positions), len(content)), content


def decode(code: Code, content: memoryview, size: int) -> Positions:
    """Decode the positions, shape (count,)."""
    return _READERS[code.form](content, code.count, size)
