"""`chita.save`: write a state dict to one file, without its zeros."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from chita.errors import ChitaError
from chita.files.atomic import as_path, regular_target, write_whole
from chita.files.packed import dtypes, planes, support
from chita.files.packed.container import assemble
from chita.files.packed.directory import Directory, Entry, write_directory
from chita.files.packed.dtypes import Bytes
from chita.model.checks import check_whole
from chita.model.forward import unwrapped


def find_ties(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return, for each further name of a tensor, its first name."""
    first_on: dict[tuple[object, ...], str] = {}
    ties: dict[str, str] = {}
    for name, tensor in tensors.items():
        if tensor.numel() == 0:  # an empty tensor shares no memory
            continue
        view = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        first = first_on.setdefault(view, name)
        if first != name:
            ties[name] = first
    return ties


def save(model: nn.Module | Mapping[str, Tensor], path: str | Path) -> None:
    """Write a model's parameters and buffers, bit for bit, without the zeros of pruned tensors.

    Each tensor is stored as a bit mask and its values, as coded differences of indices and its
    values, or dense, whichever is smallest. Tied tensors are stored once. The file is written
    atomically.

    Args:
        model: a module, bare or in DistributedDataParallel or torch.compile, or a state dict.
        path: the safetensors file to write; docs/reference/format.md describes its format.
    """
    tensors = unwrapped(model).state_dict() if isinstance(model, nn.Module) else model
    if not isinstance(tensors, Mapping):
        raise ChitaError(
            "model must be a torch.nn.Module or a state dict, and comes before path; got "
            f"{type(model).__name__}"
        )
    path = as_path(path)
    regular_target(path)  # a path that cannot be written raises an error before the work
    write_whole(path, pack(tensors))


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the content of the file."""
    _check_dense(tensors)
    tied = find_ties(tensors)
    entries: list[Entry] = []
    codes: list[bytes] = []
    values: dict[str, list[Bytes]] = {}
    for name, tensor in tensors.items():
        if name in tied:
            continue
        entry, new_codes, new_values = _encode(name, tensor)
        entries.append(entry)
        codes += new_codes
        values.setdefault(entry.dtype, []).append(new_values)
    coded = {dtype: planes.encode(np.concatenate(parts)) for dtype, parts in values.items()}
    lengths = {dtype: tuple(map(len, parts)) for dtype, parts in coded.items()}
    return assemble(
        write_directory(Directory(tuple(entries), tied, lengths)),
        b"".join(codes),
        b"".join(plane for parts in coded.values() for plane in parts),
    )


def _check_dense(tensors: Mapping[str, Tensor]) -> None:
    check_whole(tensors.items())
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise ChitaError(f"the names of tensors must be strings, got {name!r}")
        dense = isinstance(tensor, Tensor) and tensor.layout == torch.strided
        if not dense or is_lazy(tensor) or tensor.is_meta:
            raise ChitaError(f"{name!r} cannot be packed: it is not a dense tensor with values")


def _encode(name: str, tensor: Tensor) -> tuple[Entry, list[bytes], Bytes]:
    """Return a tensor's entry, the codes of its positions, and its values, shape (n, width)."""
    dtype, shape = dtypes.dtype_name(tensor.dtype), tuple(tensor.shape)
    numbers = dtypes.to_bytes(tensor)
    dense: tuple[Entry, list[bytes], Bytes] = Entry(name, dtype, shape), [], numbers
    if dtype not in dtypes.PRUNABLE:
        return dense
    words = dtypes.to_words(numbers, dtype)
    magnitudes = words << 1  # without their signs
    if magnitudes.all():
        return dense
    sets = [np.flatnonzero(magnitudes != 0)]
    negative_zeros = np.flatnonzero(words == dtypes.negative_zero(dtype))
    if len(negative_zeros):
        sets.append(negative_zeros)
    coded = [support.encode(positions, len(words)) for positions in sets]
    contents = [content for _, content in coded]
    values = dtypes.from_words(words[sets[0]])
    if sum(map(len, contents)) + values.nbytes >= numbers.nbytes:
        return dense
    return Entry(name, dtype, shape, tuple(code for code, _ in coded)), contents, values
