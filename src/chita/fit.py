"""Whether the tensors of a file are those of a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from chita.errors import ChitaError

NAMED = 10  # names in a message at most


def check_fit(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], path: str | Path) -> None:
    """Refuse tensors of other names or shapes than those wanted.

    Args:
        wanted: the state dict of the model.
        found: the tensors of the file.
        path: the file, for the message.
    """
    _check_names(wanted, found, path)
    for name, tensor in wanted.items():
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


def _first(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
