"""A second reader, after docs/reference/format.md alone: loops over bits, and no code of chita."""

import json
import zlib
from math import prod
from pathlib import Path

from safetensors import safe_open


def bits_of(content: bytes) -> list[int]:
    return [byte >> bit & 1 for byte in content for bit in range(8)]


def positions(form: str, count: int, code: bytes, size: int) -> list[int]:
    if form == "mask":
        return [i for i, bit in enumerate(bits_of(code)[:size]) if bit]
    k, runs = code[0], count + 1
    low_bytes = -(-runs * k // 8)
    low, unary = bits_of(code[1 : 1 + low_bytes]), bits_of(code[1 + low_bytes :])
    found, place, start = [], 0, 0
    for run in range(runs):
        stop = unary.index(1, start)
        length = (stop - start << k) + sum(low[bit * runs + run] << bit for bit in range(k))
        start, place = stop + 1, place + length
        found.append(place)
        place += 1
    assert found.pop() == size
    return found


def read_slowly(path: Path) -> dict[str, list[bytes]]:
    """Name -> the bytes of every entry."""
    with safe_open(path, framework="np") as file:
        assert file.metadata()["format"] == "chita.packed" and file.metadata()["version"] == "1"
        parts = {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
    directory = json.loads(zlib.decompress(parts["directory"], wbits=-15))
    counts: dict[str, int] = {}
    for _, dtype, shape, *codes in directory["tensors"]:
        counts[dtype] = counts.get(dtype, 0) + (codes[0][1] if codes else prod(shape))
    values, start = {}, 0
    for dtype, lengths in directory["planes"].items():
        planes = []
        for length in lengths:
            plane = parts["values"][start : start + length]
            planes.append(plane if length == counts[dtype] else zlib.decompress(plane, wbits=-15))
            start += length
        values[dtype] = iter([bytes(reversed(each)) for each in zip(*planes, strict=True)])
    tensors, start = {}, 0
    for name, dtype, shape, *codes in directory["tensors"]:
        size, width = prod(shape), len(directory["planes"][dtype])
        sets = [list(range(size))]
        if codes:
            sets = []
            for form, count, length in codes:
                code = parts["supports"][start : start + length]
                sets.append(positions(form, count, code, size))
                start += length
        entries = [bytes(width)] * size
        for place in sets[0]:
            entries[place] = next(values[dtype])
        for place in [*sets, []][1]:
            entries[place] = bytes(width - 1) + b"\x80"
        tensors[name] = entries
    return tensors | {name: tensors[first] for name, first in directory["tied"].items()}
