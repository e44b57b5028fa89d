"""A set of positions as a bit mask: one bit for each place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from chita.errors import ChitaError

Positions = npt.NDArray[np.int64]


def mask_bytes(size: int) -> int:
    """The length of a mask over `size` places."""
    return (size + 7) // 8


def encode(positions: Positions, size: int) -> bytes:
    """Bit i of the mask, counted from the lowest of the first byte, says whether i is in the set.

    Args:
        positions: (n,), increasing, in [0, size).
        size: places.
    """
    bits = np.zeros(size, dtype=np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def decode(code: memoryview, count: int, size: int) -> Positions:
    """The `count` positions in [0, size), increasing, shape (count,)."""
    if len(code) != mask_bytes(size):
        raise ChitaError(f"a bit mask of {size} places has {len(code)} bytes")
    bits = np.unpackbits(np.frombuffer(code, dtype=np.uint8), bitorder="little")
    positions = np.flatnonzero(bits)
    if len(positions) != count or (count and positions[-1] >= size):
        raise ChitaError(f"a bit mask does not hold {count} of {size} places")
    return positions
