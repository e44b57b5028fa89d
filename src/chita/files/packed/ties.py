"""Tied tensors: several names for the same memory."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def find_ties(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Name -> the first name of the same tensor, for all but first names."""
    first_on: dict[tuple[object, ...], str] = {}
    ties: dict[str, str] = {}
    for name, tensor in tensors.items():
        if tensor.numel() == 0:  # has no memory to share
            continue
        view = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        first = first_on.setdefault(view, name)
        if first != name:
            ties[name] = first
    return ties
