"""Checks of a model: it is a module, whole, on one device, and its tensors have values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from chita.errors import ChitaError

# The classes of sharded parameters and of the wrapper of the first FSDP. Importing them is slow.
SHARDED = ("DTensor", "FullyShardedDataParallel")


def check_module(model: Any, name: str = "model") -> None:
    """Raise a ChitaError unless `model`, the argument `name`, is a torch.nn.Module."""
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        hint = ""
        if isinstance(model, type) and issubclass(model, nn.Module):
            hint = f"; pass an object of the class: {model.__name__}(...)"
        elif isinstance(model, Mapping):
            hint = "; build the module, and read a state dict into it by load_state_dict"
        raise ChitaError(
            f"{name} must be a torch.nn.Module, got {model!r:.80} of type {kind}{hint}"
        )


def check_model(model: nn.Module) -> None:
    """Raise a ChitaError unless the model is whole, on one device, and all tensors have values."""
    check_module(model)
    check_not_sharded(model)
    devices = {str(tensor.device): name for name, tensor in model.named_parameters()}
    if len(devices) > 1:
        where = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise ChitaError(f"the model is on several devices ({where}); move it to one")
    check_values(chain(model.named_parameters(), model.named_buffers()))
    for name, parameter in model.named_parameters():
        if parameter.is_inference():
            raise ChitaError(
                f"{name!r} was made under torch.inference_mode() and cannot be changed: make "
                "the model outside of it, or prune a copy.deepcopy of it"
            )


def check_values(tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Raise a ChitaError if one of the named tensors has no values, as on the meta device."""
    for name, tensor in tensors:
        if is_lazy(tensor) or tensor.is_meta:
            raise ChitaError(f"{name!r} holds no values yet; load or initialise the model first")


def check_not_sharded(model: nn.Module) -> None:
    """Raise a ChitaError if ranks hold parts of a parameter, as in FSDP or tensor parallelism."""
    check_whole(chain(model.named_parameters(), model.named_modules()))


def check_whole(parts: Iterable[tuple[str, Any]]) -> None:
    """Raise a ChitaError if one of the named tensors or modules is divided among ranks."""
    sharded = [name for name, part in parts if type(part).__name__ in SHARDED]
    if sharded:
        raise ChitaError(
            f"{sharded[0] or 'the model'!r} is divided among ranks (FSDP or a DTensor), but every "
            "rank needs whole parameters: prune before the model is sharded, or gather it first, "
            "by torch.distributed.checkpoint.state_dict.get_model_state_dict with "
            "StateDictOptions(full_state_dict=True), and load it into a model that is not sharded"
        )


def check_writable(name: str, tensor: Tensor) -> None:
    """Raise a ChitaError if several entries of a model's tensor share memory."""
    if any(
        step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)
    ):
        raise ChitaError(
            f"the model's {name!r} is expanded: several entries share memory, so it cannot be "
            "written to; replace it by its .clone()"
        )
