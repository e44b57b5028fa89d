"""The state a model is in, and its return to what it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from chita.model.weights import Weights


@contextmanager
def modes_restored(model: nn.Module) -> Iterator[None]:
    """Give every module its training flag back at the end, whatever happens in between."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


@contextmanager
def buffers_restored(model: nn.Module) -> Iterator[None]:
    """Give every buffer, such as batch norm's averages, its values back at the end."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, values in before:
            buffer.copy_(values)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, so that batch norm mixes no samples; each module's own flag comes back."""
    with modes_restored(model):
        model.eval()
        yield


@contextmanager
def differentiable(weights: Weights) -> Iterator[None]:
    """Gradients flow to all prunable weights, frozen or not, whatever mode the caller is in."""
    flags = [(weight.parameter, weight.parameter.requires_grad) for weight in weights]
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(True)
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def device_of(model: nn.Module) -> torch.device:
    """The device of the model's first parameter or buffer; the CPU if it has none."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


@contextmanager
def convolution_trials(wanted: bool) -> Iterator[None]:
    """Whether cuDNN tries out its kernels for each new shape and takes the fastest.

    It pays for a training, whose batches have one shape; shapes that come a few times would cost
    far more in trials than they take.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = wanted
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
