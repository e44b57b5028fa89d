"""The directory of a packed file: a JSON description of its tensors, validated when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from chita.errors import ChitaError
from chita.files.packed import dtypes
from chita.files.packed.container import parse
from chita.files.packed.planes import PATTERNS, deflate, inflate
from chita.files.packed.support import FORMS, Code

_MOST_DIMENSIONS = 64
_MOST_ENTRIES = 2**63 - 1
_MOST_INFLATION = 100  # the most bytes of JSON per stored byte; real directories have about ten


@dataclass(frozen=True)
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
    match parse(inflate(stored, _MOST_INFLATION * len(stored)), "its directory"):
        case {"tensors": list(tensors), "tied": dict(tied), "planes": dict(planes), **rest} if (
            not rest
        ):
            directory = Directory(
                tuple(_from_list(fields) for fields in tensors),
                {name: _text(first) for name, first in tied.items()},
                {dtype: _whole_numbers(lengths) for dtype, lengths in planes.items()},
            )
        case _:
            raise ChitaError("its directory has other parts than tensors, tied and planes")
    _check_names(directory)
    _check_sizes(directory)
    return directory


def _to_list(entry: Entry) -> list[Any]:
    codes = [[code.form, code.count, code.length] for code in entry.codes]
    return [entry.name, entry.dtype, list(entry.shape), *codes]


def _from_list(fields: object) -> Entry:
    match fields:
        case [str(name), str(dtype), shape, *codes] if len(codes) <= 2:
            return Entry(name, dtype, _whole_numbers(shape), tuple(map(_read_code, codes)))
    raise ChitaError(f"its directory has no tensor in {_shown(fields)}")


def _read_code(fields: object) -> Code:
    match fields:
        case [str(form), count, length] if form in FORMS:
            return Code(form, *_whole_numbers([count, length]))
    raise ChitaError(f"its directory has no code in {_shown(fields)}")


def _whole_numbers(numbers: object) -> tuple[int, ...]:
    if isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers):
        return tuple(numbers)
    raise ChitaError(f"its directory has {_shown(numbers)} instead of whole numbers")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ChitaError(f"its directory has {_shown(value)} instead of a name")


def _shown(value: object) -> str:
    return repr(value)[:60]


def _check_names(directory: Directory) -> None:
    names = [*(entry.name for entry in directory.entries), *directory.tied]
    if len(set(names)) < len(names):
        raise ChitaError("two tensors have the same name")
    for name in names:
        if not name.isprintable():
            raise ChitaError(f"the name {_shown(name)} cannot be printed")
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
