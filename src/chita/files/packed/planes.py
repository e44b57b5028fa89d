"""Values as byte planes, of which those that shrink are deflated.

The first plane has the highest byte of every value, the last one the lowest. The highest byte of a
float32 or bfloat16 weight has its sign and most of its exponent, which take few different values:
it shrinks to a third or less. The lower bytes of trained weights are noise, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chita.errors import ChitaError
from chita.files.packed.deflate import FREQUENCIES, RUNS, deflate, inflate
from chita.files.packed.dtypes import Bytes

_SHORT = 64  # bytes that are not worth a try
_SAMPLE = 2**12  # bytes that show whether a plane shrinks
_WORTH_IT = 0.9  # of its bytes: to inflate costs more time than to read


def encode(values: Bytes) -> list[bytes]:
    """The planes of `values`, shape (n, width): each n bytes, or fewer if it is deflated."""
    return [_shrunk(plane.tobytes()) for plane in values.T[::-1]]


def decode(planes: Sequence[memoryview], count: int) -> Bytes:
    """The values, shape (count, width), of as many planes as a value has bytes."""
    whole = [plane if len(plane) == count else inflate(plane, count) for plane in planes]
    if any(len(plane) != count for plane in whole):
        raise ChitaError(f"a plane holds fewer than {count} values")
    values = np.empty((count, len(planes)), dtype=np.uint8)
    for column, plane in zip(values.T[::-1], whole, strict=True):
        column[:] = np.frombuffer(plane, dtype=np.uint8)
    return values


def _shrunk(plane: bytes) -> bytes:
    if len(plane) < _SHORT:
        return plane
    sample = plane[:: 1 + len(plane) // _SAMPLE]
    length, strategy = min((len(deflate(sample, way)), way) for way in (FREQUENCIES, RUNS))
    if length > _WORTH_IT * len(sample):
        return plane
    deflated = deflate(plane, strategy)
    return deflated if len(deflated) < len(plane) else plane
