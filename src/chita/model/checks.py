"""Whether a model can be pruned at all, told before any work starts."""

from __future__ import annotations

from itertools import chain

from torch import nn
from torch.nn.parameter import is_lazy

from chita.errors import ChitaError
from chita.model.weights import Weights


def check_model(model: nn.Module) -> None:
    """The model can be run: its parameters are on one device, and all tensors hold values."""
    if not isinstance(model, nn.Module):
        raise ChitaError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    tensors = dict(chain(model.named_parameters(), model.named_buffers()))
    devices = {str(tensor.device): name for name, tensor in model.named_parameters()}
    if len(devices) > 1:
        where = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise ChitaError(f"the model is on several devices ({where}); move it to one")
    for name, tensor in tensors.items():
        if is_lazy(tensor) or tensor.is_meta:
            raise ChitaError(f"{name!r} holds no values yet; load or initialise the model first")
        if isinstance(tensor, nn.Parameter) and tensor.is_inference():
            raise ChitaError(
                f"{name!r} was made under torch.inference_mode() and cannot be changed: make the "
                "model outside it, or prune a copy.deepcopy of it"
            )


def check_finite(weights: Weights) -> None:
    """The prunable weights are numbers."""
    for weight in weights:
        if not bool(weight.parameter.isfinite().all()):
            raise ChitaError(
                f"{weight.name!r} holds NaN or infinite weights; the model must be a trained one"
            )
