"""The state a model is in while its gradients are taken, and its return to what it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from chita.weights import Weights


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, so that batch norm mixes no samples; each module's own flag comes back."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in flags:
            module.training = training


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
