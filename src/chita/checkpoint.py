"""Weights in files: safetensors, and the older .pt and .pth read without running their code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.files import write_whole

_PICKLED = (".pt", ".pth")
NAMED = 10  # names in a message at most
_WRAPPERS = ("state_dict", "model")


def load_checkpoint(model: nn.Module, path: str | Path) -> None:
    """Load a checkpoint into the model, which is changed only if every tensor fits.

    Args:
        model: its state dict says what the checkpoint must hold.
        path: a safetensors file, or a .pt or .pth file with a state dict, which may sit under
            "state_dict" or "model".
    """
    path = Path(path)
    if path.is_dir():
        raise ChitaError(f"checkpoint {path} is a folder: give a file")
    found = _read_pickled(path) if path.suffix in _PICKLED else _read_safetensors(path)
    wanted = model.state_dict()
    _check_names(wanted, found, path)
    for name, tensor in wanted.items():
        if found[name].shape != tensor.shape:
            raise ChitaError(
                f"checkpoint {path} does not fit the model: {name!r} has shape "
                f"{tuple(found[name].shape)}, the model's is {tuple(tensor.shape)}"
            )
    model.load_state_dict(found)


def save_checkpoint(weights: nn.Module | Mapping[str, Tensor], path: str | Path) -> None:
    """Write a model's state dict, or the tensors given, as safetensors.

    The file appears at once and whole, or not at all. Tensors that share memory are written each.
    """
    tensors = weights.state_dict() if isinstance(weights, nn.Module) else weights
    # Copies, because safetensors takes no two tensors on the same memory.
    content = safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    )
    write_whole(Path(path), content)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ChitaError(f"cannot read {path} as a safetensors checkpoint: {error}") from error


def _read_pickled(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler raises nearly anything on a damaged file
        reason = "it is damaged, or holds more than tensors, which might run code"
        if isinstance(error, OSError):
            reason = str(error)
        raise ChitaError(f"cannot read {path} as a PyTorch checkpoint: {reason}") from error
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not all(isinstance(t, Tensor) for t in content.values()):
        raise ChitaError(
            f"checkpoint {path} holds no state dict: expected tensors by name, or such a dict "
            f"under {' or '.join(map(repr, _WRAPPERS))}"
        )
    return content


def _check_names(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], path: Path) -> None:
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
