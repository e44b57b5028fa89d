"""Raw deflate streams (RFC 1951), read without more memory than is granted."""

from __future__ import annotations

import zlib

from chita.errors import ChitaError

_WINDOW = -zlib.MAX_WBITS  # no frame: the file has its own checksum
PATTERNS = zlib.Z_DEFAULT_STRATEGY  # looks for what was there before, as in text
RUNS = zlib.Z_RLE  # for runs of equal bytes alone
FREQUENCIES = zlib.Z_HUFFMAN_ONLY  # for nothing, and gives frequent bytes few bits; the fastest


def deflate(content: bytes, strategy: int) -> bytes:
    """The stream of `content`."""
    stream = zlib.compressobj(wbits=_WINDOW, memLevel=9, strategy=strategy)
    return stream.compress(content) + stream.flush()


def inflate(content: memoryview, limit: int) -> bytes:
    """What the stream holds; a stream of more than `limit` bytes is refused."""
    stream = zlib.decompressobj(wbits=_WINDOW)
    try:
        inflated = stream.decompress(content, limit + 1)
    except zlib.error as error:
        raise ChitaError(f"a deflated part is damaged ({error})") from error
    if len(inflated) > limit:
        raise ChitaError(f"a deflated part holds more than {limit} bytes")
    if not stream.eof or stream.unused_data:
        raise ChitaError("a deflated part is cut short or too long")
    return inflated
