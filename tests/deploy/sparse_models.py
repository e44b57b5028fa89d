"""Layers and networks with zeros."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def sparse(layer: nn.Module, sparsity: float, seed: int = 0) -> nn.Module:
    """The layer with random weights and biases, of which a share of the weights is zero."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
            if name.endswith("weight"):
                parameter.mul_(torch.rand(parameter.shape, generator=draw) >= sparsity)
    return layer


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def wide(sparsity: float = 0.98, size: int = 512) -> nn.Sequential:
    """Two wide Linear layers, sparse, and a dense one."""
    return nn.Sequential(
        sparse(nn.Linear(size, size), sparsity),
        nn.ReLU(),
        sparse(nn.Linear(size, size, bias=False), sparsity, seed=2),
        nn.ReLU(),
        sparse(nn.Linear(size, 10), 0.0, seed=3),
    ).eval()
