"""Check that the tensors of a file fit a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor
from torch.nn.parameter import is_lazy

from chita.errors import ChitaError

NAMED = 10  # the most names in a message


def check_fit(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], path: str | Path) -> None:
    """Raise an error if names or shapes differ, or if the model cannot be written to.

    Args:
        wanted: the state dict of the model.
        found: the tensors of the file.
        path: the file, for the error message.
    """
    _check_names(wanted, found, path)
    for name, tensor in wanted.items():
        _check_memory(name, tensor)
        if found[name].shape != tensor.shape:
            raise ChitaError(
                f"checkpoint {path} does not fit the model: {name!r} has shape "
                f"{tuple(found[name].shape)}, the model's is {tuple(tensor.shape)}"
            )


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
    if any(
        step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)
    ):
        raise ChitaError(
            f"the model's {name!r} is expanded: several entries share memory, so it cannot be "
            "written to; replace it by its .clone()"
        )


def _first(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
