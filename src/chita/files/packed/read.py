"""Read packed files without running code, and with memory limited by the size of the file.

A mask has a bit for every position, a code of differences at least one for 256 positions, and
deflate expands a byte to at most 1032. These limits are checked before memory is allocated: float32
tensors take at most 8192 times the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from torch import Tensor

from chita.errors import ChitaError
from chita.files.packed import dtypes, planes, support
from chita.files.packed.container import take_apart
from chita.files.packed.directory import Directory, Entry, read_directory
from chita.files.packed.dtypes import Bytes


def read_packed(path: Path) -> tuple[Directory, dict[str, Tensor]]:
    """Return the directory of a file, and its dense tensors by name."""
    try:
        if path.is_dir():
            raise ChitaError("it is a folder: give a file")
        if not path.exists():
            raise ChitaError("there is no such file")
        if not path.is_file():  # reading from a pipe might never end
            raise ChitaError("it is not a regular file")
        return unpack(path.read_bytes())
    except (ChitaError, OSError) as error:
        raise ChitaError(f"cannot read {path}: {error}") from error
    except MemoryError as error:
        raise ChitaError(f"cannot read {path}: its tensors do not fit into memory") from error


def unpack(content: bytes) -> tuple[Directory, dict[str, Tensor]]:
    """Return the directory and the tensors; names of tied tensors refer to the same tensor."""
    parts = take_apart(content)
    directory = read_directory(parts.directory)
    codes = _cut(parts.supports, [c.length for e in directory.entries for c in e.codes])
    lengths = [length for each in directory.planes.values() for length in each]
    stored = _cut(parts.values, lengths)
    values = {
        dtype: planes.decode([next(stored) for _ in each], directory.values_of(dtype))
        for dtype, each in directory.planes.items()
    }
    tensors: dict[str, Tensor] = {}
    used = dict.fromkeys(values, 0)
    for entry in directory.entries:
        start = used[entry.dtype]
        used[entry.dtype] = stop = start + entry.values
        try:
            numbers = _decode(entry, codes, values[entry.dtype][start:stop])
            tensors[entry.name] = dtypes.to_tensor(numbers, entry.dtype, entry.shape)
        except ChitaError as error:
            raise ChitaError(f"{entry.name!r} is damaged: {error}") from error
    return directory, tensors | {name: tensors[first] for name, first in directory.tied.items()}


def _cut(part: memoryview, lengths: list[int]) -> Iterator[memoryview]:
    """Return pieces of these lengths, which must cover the whole part."""
    stops = list(accumulate(lengths, initial=0))
    if stops[-1] != len(part):
        raise ChitaError(f"its directory accounts for {stops[-1]} bytes of {len(part)}")
    return (part[start:stop] for start, stop in pairwise(stops))


def _decode(entry: Entry, codes: Iterator[memoryview], values: Bytes) -> Bytes:
    """Return the numbers of a tensor in new memory, shape (size, width)."""
    if not entry.codes:
        return np.array(values)
    sets = [support.decode(code, next(codes), entry.size) for code in entry.codes]
    numbers: Bytes = np.zeros((entry.size, values.shape[1]), dtype=np.uint8)
    words = dtypes.to_words(numbers, entry.dtype)
    words[sets[0]] = dtypes.to_words(values, entry.dtype)
    for negative in sets[1:]:
        # Both sets are increasing, without duplicates; a value may be zero.
        if len(np.intersect1d(sets[0], negative, assume_unique=True)):
            raise ChitaError("a place is both a value and -0.0")
        words[negative] = dtypes.negative_zero(entry.dtype)
    return numbers
