"""Values as byte planes, deflated (RFC 1951) if that makes them smaller."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from chita.errors import ChitaError
from chita.files.packed.dtypes import Bytes

_WINDOW = -zlib.MAX_WBITS  # without a frame, because the file has its own checksum
PATTERNS = zlib.Z_DEFAULT_STRATEGY  # repeated strings, as in text
RUNS = zlib.Z_RLE  # only runs of equal bytes
FREQUENCIES = zlib.Z_HUFFMAN_ONLY  # only byte frequencies; the fastest


def deflate(content: bytes, strategy: int) -> bytes:
    """Return the deflated stream of `content`."""
    stream = zlib.compressobj(wbits=_WINDOW, memLevel=9, strategy=strategy)
    return stream.compress(content) + stream.flush()


def inflate(content: memoryview, limit: int) -> bytes:
    """Return the content of a stream; raise an error if it has more than `limit` bytes."""
    return b"".join(inflate_pieces(content, limit, limit + 1))


def inflate_pieces(content: memoryview, limit: int, most: int = 1 << 16) -> Iterator[bytes]:
    """Yield the content of a stream in pieces of at most `most` bytes; see `inflate`."""
    stream = zlib.decompressobj(wbits=_WINDOW)
    total, waiting = 0, bytes(content)
    while not stream.eof:
        try:
            piece = stream.decompress(waiting, most)
        except zlib.error as error:
            raise ChitaError(f"a deflated part is damaged ({error})") from error
        total, waiting = total + len(piece), stream.unconsumed_tail
        if total > limit:
            raise ChitaError(f"a deflated part holds more than {limit} bytes")
        if not piece and not stream.eof:
            break
        yield piece
    if not stream.eof or stream.unused_data:
        raise ChitaError("a deflated part is cut short or too long")


_SHORT = 64  # planes of fewer bytes are not deflated
_SAMPLE = 2**12  # bytes of a plane that are deflated to estimate its ratio
_WORTH_IT = 0.9  # the largest worthwhile ratio, because inflating takes longer than reading


def encode(values: Bytes) -> list[bytes]:
    """Return the planes of `values`, shape (n, width): each n bytes, or fewer if it is deflated."""
    return [_shrunk(plane.tobytes()) for plane in values.T[::-1]]


def decode(planes: Sequence[memoryview], count: int) -> Bytes:
    """Return the values, shape (count, width), of as many planes as a value has bytes."""
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
