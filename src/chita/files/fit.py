"""Check that the tensors of a file fit a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from chita.errors import ChitaError
from chita.model.checks import check_whole, check_writable
from chita.model.ties import memory_of

NAMED = 10  # the most names in a message


def check_fit(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], path: str | Path) -> None:
    """Raise an error if names, shapes or kinds differ, or if the model cannot be written to.

    Other precisions fit: a float16 value becomes a float32 one. An int8 or complex value has
    another meaning, such as that of a quantized weight, and would lose it.

    Args:
        wanted: the state dict of the model.
        found: the tensors of the file.
        path: the file, for the error message.
    """
    check_whole(wanted.items())
    _check_names(wanted, found, path)
    for name, tensor in wanted.items():
        _check_memory(name, tensor)
        if found[name].shape != tensor.shape:
            raise ChitaError(
                f"checkpoint {path} does not fit the model: {name!r} has shape "
                f"{tuple(found[name].shape)}, the model's is {tuple(tensor.shape)}"
            )
        if _kind(found[name]) != _kind(tensor):
            raise ChitaError(
                f"checkpoint {path} does not fit the model: {name!r} is {found[name].dtype}, the "
                f"model's is {tensor.dtype}; convert the checkpoint, by dequantizing integers or "
                "choosing a real part"
            )


def with_ties(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file with those that it has under the name of a tied one only.

    Hugging Face writes a tensor that a model has under several names once.

    Args:
        wanted: the state dict of the model.
        found: the tensors of the file.
    """
    names = {memory_of(tensor): name for name, tensor in wanted.items() if name in found}
    missing = {name: names.get(memory_of(tensor)) for name, tensor in wanted.items()}
    return {
        **found,
        **{
            name: found[other]
            for name, other in missing.items()
            if name not in found and other is not None
        },
    }


def _kind(tensor: Tensor) -> tuple[bool, bool, bool]:
    return tensor.is_floating_point(), tensor.is_complex(), tensor.dtype == torch.bool


def _check_names(
    wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], path: str | Path
) -> None:
    missing = [name for name in wanted if name not in found]
    extra = [name for name in found if name not in wanted]
    faults = [
        f"{kind} {_first(names)}"
        for kind, names in (("missing:", missing), ("not in the model:", extra))
        if names
    ]
    if faults:
        raise ChitaError(f"checkpoint {path} does not fit the model; {'; '.join(faults)}")


def _check_memory(name: str, tensor: Tensor) -> None:
    """Raise an error if a tensor has no shape yet or entries that share memory."""
    if is_lazy(tensor):
        raise ChitaError(f"the model's {name!r} has no shape yet: run the model on a batch first")
    check_writable(name, tensor)


def _first(names: list[str]) -> str:
    more = len(names) - NAMED
    shown = (name if name.isprintable() else repr(name) for name in names[:NAMED])
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
