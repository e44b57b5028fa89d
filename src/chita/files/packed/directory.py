"""The directory of a packed file: a JSON description of its tensors, validated when it is read."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from chita.errors import ChitaError
from chita.files.packed import dtypes
from chita.files.packed.json_scanner import LONGEST_STRING, JsonScanner
from chita.files.packed.planes import PATTERNS, deflate, inflate_pieces
from chita.files.packed.support import FORMS, Code

_MOST_DIMENSIONS = 64
_MOST_ENTRIES = 2**63 - 1
_MOST_INFLATION = 100  # the most bytes of JSON per stored byte; real directories have about ten


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor.

    Attributes:
        name: the name in the state dict.
        dtype: a name of `dtypes.NAMES`.
        shape: the shape of the dense tensor.
        codes: the codes of the positions of its values and, if there are any, of -0.0; empty if it
            is stored dense.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    codes: tuple[Code, ...] = ()

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def values(self) -> int:
        """The number of stored values."""
        return self.codes[0].count if self.codes else self.size

    @property
    def form(self) -> str:
        return self.codes[0].form if self.codes else "dense"


@dataclass(frozen=True)
class Directory:
    """All tensors of a file.

    Attributes:
        entries: the tensors in the order in which codes and values are stored.
        tied: the further names of tensors -> the names under which they are stored.
        planes: the types -> the bytes of each plane of values.
    """

    entries: tuple[Entry, ...]
    tied: Mapping[str, str]
    planes: Mapping[str, tuple[int, ...]]

    def values_of(self, dtype: str) -> int:
        """Return the number of stored values of a type."""
        return sum(entry.values for entry in self.entries if entry.dtype == dtype)


def write_directory(directory: Directory) -> bytes:
    """Encode a directory as deflated JSON."""
    _check_names(directory)
    content = {
        "tensors": [_to_list(entry) for entry in directory.entries],
        "tied": dict(directory.tied),
        "planes": {dtype: list(lengths) for dtype, lengths in directory.planes.items()},
    }
    return deflate(json.dumps(content, separators=(",", ":")).encode(), PATTERNS)


def read_directory(stored: memoryview) -> Directory:
    """Decode a directory and check that it is consistent."""
    limit = _MOST_INFLATION * len(stored)
    for _ in inflate_pieces(stored, limit):
        pass  # the whole stream is checked first, without memory for it
    scanner = JsonScanner(inflate_pieces(stored, limit), "its directory")
    directory = _read_parts(scanner)
    _check_names(directory)
    _check_sizes(directory)
    return directory


def _read_parts(scanner: JsonScanner) -> Directory:
    readers = {"tensors": _read_entries, "tied": _read_ties, "planes": _read_planes}
    parts: dict[str, Any] = {}
    for _ in scanner.items("{", "}"):
        name = scanner.key()
        if name in parts or name not in readers:
            raise ChitaError(f"its directory has a part {_shown(name)}, or has it twice")
        parts[name] = readers[name](scanner)
    scanner.expect("")
    if len(parts) < len(readers):
        raise ChitaError(f"its directory must have the parts {', '.join(readers)}")
    return Directory(**{"entries": parts.pop("tensors"), **parts})


def _read_entries(scanner: JsonScanner) -> tuple[Entry, ...]:
    """Read the tensors; each one is checked before the next is read."""
    entries: dict[str, Entry] = {}
    for _ in scanner.items("[", "]"):
        entry = _read_entry(scanner)
        _check_entry(entry)
        if entry.name in entries:
            raise ChitaError(f"two tensors have the same name, {_shown(entry.name)}")
        entries[entry.name] = entry
    return tuple(entries.values())


def _read_entry(scanner: JsonScanner) -> Entry:
    scanner.expect("[")
    name = scanner.string()
    scanner.expect(",")
    dtype = sys.intern(scanner.string())
    scanner.expect(",")
    shape = _read_numbers(scanner, _MOST_DIMENSIONS)
    codes: list[Code] = []
    while not scanner.take("]"):
        scanner.expect(",")
        codes.append(_read_code(scanner))
        if len(codes) > 2:
            raise ChitaError(f"{_shown(name)} has more than two codes")
    return Entry(name, dtype, shape, tuple(codes))


def _read_code(scanner: JsonScanner) -> Code:
    scanner.expect("[")
    form = sys.intern(scanner.string())
    if form not in FORMS:
        raise ChitaError(f"its directory has a code of the unknown form {_shown(form)}")
    scanner.expect(",")
    count = scanner.number()
    scanner.expect(",")
    length = scanner.number()
    scanner.expect("]")
    return Code(form, count, length)


def _read_numbers(scanner: JsonScanner, most: int) -> tuple[int, ...]:
    numbers: list[int] = []
    for _ in scanner.items("[", "]"):
        numbers.append(scanner.number())
        if len(numbers) > most:
            raise ChitaError(f"its directory has a list of more than {most} numbers")
    return tuple(numbers)


def _read_ties(scanner: JsonScanner) -> dict[str, str]:
    ties: dict[str, str] = {}
    for _ in scanner.items("{", "}"):
        name = scanner.key()
        if name in ties:
            raise ChitaError(f"two tensors have the same name, {_shown(name)}")
        ties[name] = scanner.string()
    return ties


def _read_planes(scanner: JsonScanner) -> dict[str, tuple[int, ...]]:
    planes: dict[str, tuple[int, ...]] = {}
    for _ in scanner.items("{", "}"):
        dtype = scanner.key()
        if dtype in planes or dtype not in dtypes.NAMES:
            raise ChitaError(f"it has values of the type {_shown(dtype)}, or has them twice")
        planes[dtype] = _read_numbers(scanner, dtypes.width(dtype))
    return planes


def _to_list(entry: Entry) -> list[Any]:
    codes = [[code.form, code.count, code.length] for code in entry.codes]
    return [entry.name, entry.dtype, list(entry.shape), *codes]


def _shown(value: object) -> str:
    return repr(value)[:60]


def _check_names(directory: Directory) -> None:
    names = [*(entry.name for entry in directory.entries), *directory.tied]
    if len(set(names)) < len(names):
        raise ChitaError("two tensors have the same name")
    for name in names:
        if not name.isprintable() or len(name) > LONGEST_STRING:
            raise ChitaError(f"the name {_shown(name)} cannot be printed, or is too long")
    if not set(directory.tied.values()) <= {entry.name for entry in directory.entries}:
        raise ChitaError("a tied tensor is missing")


def _check_sizes(directory: Directory) -> None:
    for entry in directory.entries:
        _check_entry(entry)
    used = {entry.dtype for entry in directory.entries}
    if used != set(directory.planes):
        given = _shown(sorted(directory.planes))
        raise ChitaError(f"it has values of the types {given}, not {sorted(used)}")
    for dtype, lengths in directory.planes.items():
        count = directory.values_of(dtype)
        if len(lengths) != dtypes.width(dtype) or max(lengths) > count:
            raise ChitaError(
                f"the planes of {count} values of {dtype} have {_shown(lengths)} bytes"
            )


def _check_entry(entry: Entry) -> None:
    fault = None
    if entry.dtype not in dtypes.NAMES:
        fault = f"has the unknown type {_shown(entry.dtype)}"
    elif len(entry.shape) > _MOST_DIMENSIONS or prod(n or 1 for n in entry.shape) > _MOST_ENTRIES:
        fault = "is too large"
    elif entry.codes and entry.dtype not in dtypes.PRUNABLE:
        fault = f"is {entry.dtype}, which is stored dense"
    elif sum(code.count for code in entry.codes) > entry.size:
        fault = "has more values than places"
    if fault is not None:
        raise ChitaError(f"{_shown(entry.name)} of shape {_shown(entry.shape)} {fault}")
