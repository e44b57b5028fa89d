"""Single samples: how they differ from batches, and how they are joined to a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.model.samples.arrays import (
    LABELS,
    InputSpec,
    array_tensor,
    as_array,
    batch_tensors,
    is_array,
    is_scalar,
    list_depth,
)

TOKENS = "input_ids"  # the keyword of token ids in Hugging Face's models


def is_row(item: Any) -> bool:
    """Return whether an item can only be a single sample.

    A sample is a pair whose target is a number, a list of token ids, or a dict whose label is a
    number or whose `input_ids` are a vector. All other items may be batches.
    """
    if isinstance(item, Mapping):
        labels = [item[name] for name in LABELS if name in item]
        tokens: Any = item.get(TOKENS)
        vector = list_depth(tokens) == 1 or (is_array(tokens) and np.ndim(tokens) == 1)
        return vector or any(is_scalar(label) for label in labels)
    if list_depth(item) == 1:
        return True
    return isinstance(item, (tuple, list)) and len(item) == 2 and is_scalar(item[1])


def collate(rows: Sequence[Any], spec: InputSpec, where: str) -> Any:
    """Join samples to a batch of tensors: (inputs, targets), (inputs,) or a dict.

    Args:
        rows: samples of one structure.
        spec: what the model takes.
        where: the name of the data, for messages.

    Raises:
        ChitaError: the samples cannot be joined.
    """
    joined = _join(rows, spec, f"a sample of {where}")
    content = joined if isinstance(joined, (tuple, Mapping)) else (joined,)
    return batch_tensors(content, spec, where)


def _join(rows: Sequence[Any], spec: InputSpec, where: str) -> Any:
    """Join the values of all rows; lists of numbers that differ in length stay lists."""
    first = rows[0]
    alike = all(map(is_scalar, rows)) or all(map(is_array, rows))
    if not alike and any(type(row) is not type(first) for row in rows):
        kinds = sorted({type(row).__name__ for row in rows})
        raise ChitaError(f"{where} must have one type, got {', '.join(kinds)}")
    if is_array(first):
        return _stack([array_tensor(row, spec.dtype, where) for row in rows], where)
    if is_scalar(first):
        return array_tensor(np.asarray(rows), spec.dtype, where)
    if list_depth(first):
        array = as_array(rows, where)
        return list(rows) if array is None else array_tensor(array, spec.dtype, where)
    if isinstance(first, Mapping):
        if any(row.keys() != first.keys() for row in rows):
            raise ChitaError(f"{where} must have the same keys as the others: {list(first)}")
        return {
            key: _join([row[key] for row in rows], spec, f"{where} at {key!r}") for key in first
        }
    if isinstance(first, (tuple, list)) and first:
        if any(len(row) != len(first) for row in rows):
            raise ChitaError(f"{where} must have {len(first)} parts, as the first one has")
        columns = enumerate(zip(*rows, strict=True))
        return tuple(_join(column, spec, f"{where}, part {i},") for i, column in columns)
    raise ChitaError(_unfit(first, where))


def _stack(tensors: list[Tensor], where: str) -> Any:
    shapes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes) == 1:
        return torch.stack(tensors)
    if all(tensor.ndim == 1 and not tensor.is_floating_point() for tensor in tensors):
        return [tensor.tolist() for tensor in tensors]  # token ids, which can be padded
    raise ChitaError(
        f"{where} must have one shape, got the shapes {shapes[0]} and {shapes[-1]}; resize or pad "
        "the samples in the data set"
    )


def _unfit(value: Any, where: str) -> str:
    """Return an error message about a value that no tensor can be made of."""
    kind = type(value).__name__
    if isinstance(value, str):
        hint = "tokenize text, and remove columns that the model does not take"
    elif hasattr(type(value), "__array_interface__"):  # an image of Pillow
        hint = "convert images in the data set, as by transform=torchvision.transforms.ToTensor()"
    else:
        hint = (
            "return tensors, arrays and numbers, or pass "
            "DataLoader(dataset, batch_size=64, collate_fn=...)"
        )
    return f"{where} is of type {kind}, which is not a tensor; {hint}"
