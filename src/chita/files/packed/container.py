"""The safetensors file around a packed state dict: three tensors of bytes and a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from chita.errors import ChitaError
from chita.files.regular import open_regular


def parse(content: bytes, what: str) -> Any:
    """Parse JSON; duplicate keys and invalid JSON are errors.

    Args:
        content: the text in UTF-8.
        what: the name of the content, for the error message.
    """
    try:
        return json.loads(content.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ChitaError(f"{what} is not valid JSON ({error})") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it has a duplicate key")
    return found


FORMAT = "chita.packed"
VERSION = "1"
PARTS = ("directory", "supports", "values")
_PREFIX = 8  # bytes of the length of the header
_MOST_HEADER = 1 << 16  # that of a packed file has less than 1000 bytes


@dataclass(frozen=True)
class Parts:
    """The contents of a packed file."""

    directory: memoryview
    supports: memoryview
    values: memoryview


def assemble(directory: bytes, supports: bytes, values: bytes) -> bytes:
    """Return the bytes of the file."""
    parts = (directory, supports, values)
    stops = list(accumulate(len(part) for part in parts))
    header: dict[str, Any] = {
        "__metadata__": {"format": FORMAT, "version": VERSION, "digest": _digest(*parts)}
    }
    for name, part, stop in zip(PARTS, parts, stops, strict=True):
        offsets = [stop - len(part), stop]
        header[name] = {"dtype": "U8", "shape": [len(part)], "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # safetensors aligns its data
    return b"".join((len(text).to_bytes(_PREFIX, "little"), text, *parts))


def is_packed(path: Path) -> bool:
    """Return whether the file is a packed one, even if damaged; False for all other files."""
    try:
        with open_regular(path) as file:
            prefix = file.read(_PREFIX)
            return _claims_to_be_packed(_read_header(file.read(_header_bytes(prefix))))
    except (ChitaError, OSError):
        return False


def take_apart(content: bytes) -> Parts:
    """Return the parts of a file after checking its digest."""
    start = _PREFIX + _header_bytes(content[:_PREFIX])
    header, data = _read_header(content[_PREFIX:start]), memoryview(content)[start:]
    if not _claims_to_be_packed(header):
        raise ChitaError("it is not a packed file; chita pack makes one")
    digest = _check_version(header)
    parts = Parts(*_cut(header, data))
    if _digest(parts.directory, parts.supports, parts.values) != digest:
        raise ChitaError("it is damaged: its content does not match the digest in its header")
    return parts


def _header_bytes(prefix: bytes) -> int:
    length = int.from_bytes(prefix, "little")
    if len(prefix) < _PREFIX or length > _MOST_HEADER:
        raise ChitaError("it is not a safetensors file of packed tensors")
    return length


def _read_header(content: bytes) -> dict[str, Any]:
    header = parse(content, "its header")
    if not isinstance(header, dict):
        raise ChitaError("its header is not a JSON object")
    return header


def _claims_to_be_packed(header: dict[str, Any]) -> bool:
    """Return whether the format or the parts are those of a packed file.

    One of the two is enough, so that a damaged packed file is not mistaken for a plain one.
    """
    metadata = header.get("__metadata__")
    named = isinstance(metadata, dict) and metadata.get("format") == FORMAT
    return named or set(PARTS) <= set(header)


def _check_version(header: dict[str, Any]) -> object:
    """Return the digest in the header; raise an error for an unknown format or version."""
    metadata = header.get("__metadata__")
    match metadata:
        case {"format": "chita.packed", "version": "1", "digest": digest}:
            return digest
    raise ChitaError(
        f"its format is {repr(metadata)[:100]}; this chita reads {FORMAT!r}, version {VERSION!r}"
    )


def _cut(header: dict[str, Any], data: memoryview) -> Iterator[memoryview]:
    """Yield the parts, which must be adjacent and cover all the data."""
    if set(header) != {"__metadata__", *PARTS}:
        raise ChitaError(f"its tensors must be {', '.join(PARTS)}")
    end = 0
    for name in PARTS:
        match header[name]:
            case {"dtype": "U8", "shape": [int(length)], "data_offsets": [start, int(stop)]} if (
                start == end and stop == end + length and length >= 0
            ):
                yield data[end:stop]
                end = stop
            case _:
                raise ChitaError(f"its part {name!r} has wrong offsets")
    if end != len(data):
        raise ChitaError(f"it has {len(data)} bytes after its header, not {end}")


def _digest(*parts: bytes | memoryview) -> str:
    """Return the BLAKE2b digest, 16 bytes, of the lengths and contents of the parts."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()
