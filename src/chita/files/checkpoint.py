"""Checkpoints: read safetensors, .pt and .pth files (without running code), write safetensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.files.atomic import write_whole
from chita.files.fit import check_fit, with_ties
from chita.files.packed.container import is_packed
from chita.files.packed.read import read_packed
from chita.files.pickled import check_dense, load_pickled
from chita.files.regular import open_regular
from chita.model.forward import unwrapped

_PICKLED = (".pt", ".pth")
_WRAPPERS = ("state_dict", "model")


def load_checkpoint(model: nn.Module, path: str | Path) -> None:
    """Load a checkpoint into the model, which changes only if every tensor fits.

    Args:
        model: the model, wrapped or not; the checkpoint must have the tensors of its state dict,
            and tied ones under one name at least.
        path: a safetensors file, packed by `chita.save` or not, or a .pt or .pth file with a state
            dict, which may be under the key "state_dict" or "model".
    """
    inner = unwrapped(model)
    found = with_ties(inner.state_dict(), read_checkpoint(path))
    check_fit(inner.state_dict(), found, path)
    inner.load_state_dict(found)


def read_checkpoint(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by name: safetensors, packed or not, or .pt or .pth."""
    path = Path(path)
    if path.is_dir():
        raise ChitaError(f"checkpoint {path} is a folder: give a file")
    if path.exists() and not path.is_file():  # reading from a pipe might never end
        raise ChitaError(f"checkpoint {path} is not a regular file")
    if path.suffix in _PICKLED:
        return _read_pickled(path)
    return read_packed(path)[1] if is_packed(path) else _read_safetensors(path)


def save_checkpoint(weights: nn.Module | Mapping[str, Tensor], path: str | Path) -> None:
    """Write a model's state dict, or the given tensors, as safetensors.

    The file is written atomically. Tensors that share memory are written separately. The names are
    those of the module inside DistributedDataParallel or torch.compile.
    """
    tensors = unwrapped(weights).state_dict() if isinstance(weights, nn.Module) else weights
    # Copies, because safetensors rejects tensors that share memory.
    content = safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    )
    write_whole(Path(path), content)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    # load_file opens the file twice, and may get the header of one file and the tensors of another
    # if a run replaces it in between.
    while True:
        before = None
        try:
            before = _version(path)
            found = safetensors.torch.load_file(path)
            if _version(path) == before:
                return found
        except (OSError, safetensors.SafetensorError) as error:
            if path.exists() and _version(path) != before:
                continue
            raise ChitaError(f"cannot read {path} as a safetensors checkpoint: {error}") from error


def _version(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is replaced."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _read_pickled(path: Path) -> dict[str, Tensor]:
    try:
        with open_regular(path) as file:
            content = load_pickled(file)
            size = os.fstat(file.fileno()).st_size
    except Exception as error:  # the unpickler raises many types of errors on a damaged file
        reason = "it is damaged, or contains objects other than tensors, which could run code"
        if isinstance(error, (OSError, ChitaError)):
            reason = str(error)
        raise ChitaError(f"cannot read {path} as a PyTorch checkpoint: {reason}") from error
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()
    ):
        raise ChitaError(
            f"checkpoint {path} contains no state dict: expected a dict of names to tensors, or "
            f"such a dict under {' or '.join(map(repr, _WRAPPERS))}"
        )
    try:
        check_dense(content, size)
    except ChitaError as error:
        raise ChitaError(f"cannot read {path} as a PyTorch checkpoint: {error}") from error
    return content
