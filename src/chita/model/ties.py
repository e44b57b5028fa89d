"""Ties: parameters on the same memory, as one object of several names or as several objects.

A tie by memory, such as `head.weight = nn.Parameter(embedding.weight.detach())`, has two objects
with values in common. Pruned one by one, each would be changed with the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from chita.errors import ChitaError


def memory_of(tensor: Tensor) -> object:
    """Return a key that is equal for tensors with the same values in the same memory."""
    if is_lazy(tensor) or tensor.is_meta or tensor.numel() == 0:
        return id(tensor)  # without memory, there is nothing to share
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


@contextmanager
def merged_ties(model: nn.Module) -> Iterator[None]:
    """Make parameters on the same memory one object until the end of the context.

    Gradients of all uses then add up. The objects are restored at the end; their values are those
    of the one object, because they share its memory.
    """
    first: dict[object, nn.Parameter] = {}
    further = [
        (module, name, parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if first.setdefault(memory_of(parameter), parameter) is not parameter
    ]
    for module, name, parameter in further:
        setattr(module, name, first[memory_of(parameter)])
    try:
        yield
    finally:
        for module, name, parameter in further:
            setattr(module, name, parameter)


def check_apart(chosen: Mapping[str, nn.Parameter], model: nn.Module) -> None:
    """Raise a ChitaError if a weight shares a part of its memory with another parameter.

    Args:
        chosen: the weights by name.
        model: the model, with parameters that may be views of one memory.
    """
    own = {memory_of(parameter) for parameter in chosen.values()}
    spans: dict[object, list[tuple[int, int, str, Tensor]]] = {}
    for name, parameter in model.named_parameters():
        if not isinstance(memory_of(parameter), int):
            place = parameter.device, parameter.untyped_storage().data_ptr()
            spans.setdefault(place, []).append((*_span(parameter), name, parameter))
    for shared in spans.values():
        shared.sort(key=lambda span: span[:2])
        for number, (start, _, name, view) in enumerate(shared):
            for _, stop, other, earlier in shared[:number]:
                keys = {memory_of(view), memory_of(earlier)}
                if stop > start and len(keys) == 2 and keys & own and _overlap(view, earlier):
                    raise ChitaError(
                        f"{name!r} and {other!r} share memory in different shapes, so that they "
                        "cannot be pruned as one weight; make each a .clone() of its own, or leave "
                        f"them out with exclude={[other, name]}"
                    )


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the first byte of a tensor in its storage, and the one after the last."""
    steps, first = zip(tensor.shape, tensor.stride(), strict=True), int(tensor.storage_offset())
    last = first + sum((size - 1) * int(step) for size, step in steps)
    return first * tensor.itemsize, (last + 1) * tensor.itemsize


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of one storage have an entry in common; spans may interleave."""
    if one.itemsize != other.itemsize:
        return True
    marks = torch.zeros(one.untyped_storage().nbytes() // one.itemsize, dtype=torch.bool)
    marks.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(marks.as_strided(other.shape, other.stride(), other.storage_offset()).any())
