"""A set of positions as a bit mask, with one bit for each position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from chita.errors import ChitaError

Positions = npt.NDArray[np.int64]


def mask_bytes(size: int) -> int:
    """Return the length of a mask over `size` positions, in bytes."""
    return (size + 7) // 8


def encode(positions: Positions, size: int) -> bytes:
    """Encode positions as a mask whose bit i, from the lowest of the first byte, is 1 for i in it.

    Args:
        positions: (n,), increasing, in [0, size).
        size: the number of possible positions.
    """
    bits = np.zeros(size, dtype=np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def decode(code: memoryview, count: int, size: int) -> Positions:
    """Return the `count` positions in [0, size), increasing, shape (count,)."""
    if len(code) != mask_bytes(size):
        raise ChitaError(f"a bit mask of {size} places has {len(code)} bytes")
    bits = np.unpackbits(np.frombuffer(code, dtype=np.uint8), bitorder="little")
    positions = np.flatnonzero(bits)
    if len(positions) != count or (count and positions[-1] >= size):
        raise ChitaError(f"a bit mask does not hold {count} of {size} places")
    return positions
