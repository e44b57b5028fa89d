"""Where the outputs and the inputs of a layer are: in its weight, and in what it hands on."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from chita.model.prunable import is_conv1d
from chita.model.weights import Weights


class Axes(NamedTuple):
    """A weight as a tensor of five dimensions, whose memory stays as it is.

    An output channel is a group and an output; the other three run over its weights. The inputs
    come before the outputs in some layers and after them in others: one of the two is then 1.
    """

    groups: int
    inputs_before: int
    outputs: int
    inputs_after: int
    kernel: int

    @classmethod
    def of(cls, module: nn.Module, weight: Tensor) -> Axes:
        """Those of a parameter that the module holds; an unknown one has its outputs first."""
        first, second, *kernel = (*weight.shape, 1, 1)[: max(weight.ndim, 2)]
        if weight is getattr(module, "weight", None):
            if isinstance(module, _ConvTransposeNd):
                groups = module.groups
                return cls(groups, first // groups, second, 1, math.prod(kernel))
            if is_conv1d(module):
                return cls(1, first, second, 1, 1)
        return cls(1, 1, first, second, math.prod(kernel))


# The dimensions of `Axes` that run over the weights of one output channel.
WITHIN_CHANNEL = (1, 3, 4)


def weight_axes(model: nn.Module, weights: Weights) -> dict[str, Axes]:
    """The axes of each weight of a model, by name."""
    owners = {id(p): module for module in model.modules() for p in module.parameters(recurse=False)}
    return {w.name: Axes.of(owners[id(w.parameter)], w.parameter) for w in weights}


def channel_dim(layer: nn.Module) -> int:
    """The dimension of a layer's inputs and outputs that channels lie along, from the end."""
    return -1 - len(layer.kernel_size) if isinstance(layer, _ConvNd) else -1
