"""`chita.load`: read the tensors of a packed file, as a dict or into a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import NoneType

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.files.atomic import as_path
from chita.files.fit import check_fit, with_ties
from chita.files.packed.dtypes import to_bytes
from chita.files.packed.read import read_packed
from chita.files.packed.write import find_ties
from chita.model.forward import unwrapped


@torch.no_grad()
def load(
    path: str | Path, into: nn.Module | Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Read a file of `chita.save` without running code.

    Args:
        path: the file.
        into: a module, wrapped or not, or a state dict, whose values are replaced in place. It
            changes only if every name, shape and type fits.

    Returns:
        The dense tensors by name, on the CPU. The names of tied tensors refer to the same tensor.
    """
    path = as_path(path)
    if not isinstance(into, (nn.Module, Mapping, NoneType)):
        raise ChitaError(
            f"into must be a torch.nn.Module or a state dict, got {type(into).__name__}"
        )
    _, found = read_packed(path)
    if isinstance(into, nn.Module):
        module = unwrapped(into)
        found = with_ties(module.state_dict(), found)
        _check_exact_fit(module.state_dict(), found, path)
        module.load_state_dict(found)
    elif into is not None:
        _check_exact_fit(into, found, path)
        for name, tensor in into.items():
            tensor.copy_(found[name])
    return found


def _check_exact_fit(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], path: Path) -> None:
    """Raise an error if types or ties differ, so that values could not be stored bit for bit."""
    check_fit(wanted, found, path)
    for name, tensor in wanted.items():
        if tensor.dtype != found[name].dtype:
            raise ChitaError(
                f"checkpoint {path} does not fit the model: {name!r} is {found[name].dtype}, "
                f"the model's is {tensor.dtype}"
            )
        if tensor.is_meta:
            raise ChitaError(f"into has no memory for {name!r}: it is on the meta device")
    for name, first in find_ties(wanted).items():
        if (
            found[name] is not found[first]
            and (to_bytes(found[name]) != to_bytes(found[first])).any()
        ):
            raise ChitaError(
                f"checkpoint {path} does not fit the model: {name!r} and {first!r} are tied in the "
                "model and different in the file"
            )
