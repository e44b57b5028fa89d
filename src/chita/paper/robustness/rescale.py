"""Copies of a network that compute the same function with weights of other scales."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.fusion import fuse_conv_bn_eval

FACTOR = 1000.0


def fold_batch_norm(model: nn.Module) -> None:
    """Put every batch norm into the convolution before it, in place; names stay as they are.

    Before it is what comes before it among the children of its module: in the zoo, that is so.
    Parameters and statistics must be those of eval mode.
    """
    for module in model.modules():
        for (name, conv), (after, norm) in pairwise(list(module.named_children())):
            if isinstance(conv, _ConvNd) and isinstance(norm, _BatchNorm):
                folded = fuse_conv_bn_eval(conv.eval(), norm.eval())
                setattr(module, name, folded)
                setattr(module, after, nn.Identity())


@torch.no_grad()
def rescale(model: nn.Module, pairs: Sequence[tuple[str, str]]) -> None:
    """Multiply the first layer of each pair by 1000 and the second by 1/1000, in place.

    ReLU(1000 z) = 1000 ReLU(z), so nothing changes if between the two there is ReLU, and what
    commutes with a factor (flattening, pooling, Dropout) at most. ReLU6 or tanh do not.

    Args:
        model: with Linear and convolution layers.
        pairs: the names of neighbouring layers. What the first gives must go nowhere else.
    """
    for first, second in pairs:
        for parameter in model.get_submodule(first).parameters():
            parameter.mul_(FACTOR)
        next_weight = model.get_submodule(second).weight
        assert isinstance(next_weight, nn.Parameter)
        next_weight.div_(FACTOR)  # its bias is added after the factors have cancelled
