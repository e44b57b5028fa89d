"""Change the scales of the weights of a network without changing its function."""

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
    """Fold every batch norm into the preceding convolution, in place; names do not change.

    The preceding convolution is the previous child of the same module, which holds for all networks
    of the zoo. Folding uses the parameters and running statistics of eval mode.
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

    Since ReLU(1000 z) = 1000 ReLU(z), the function of the network does not change if only ReLU and
    operations that commute with a factor (flattening, pooling, Dropout) lie between the two layers.
    ReLU6 and tanh do not commute with a factor.

    Args:
        model: the network; the layers are Linear or convolutions.
        pairs: the names of neighbouring layers. Only the second layer of a pair may use the output
            of the first.
    """
    for first, second in pairs:
        for parameter in model.get_submodule(first).parameters():
            parameter.mul_(FACTOR)
        next_weight = model.get_submodule(second).weight
        assert isinstance(next_weight, nn.Parameter)
        next_weight.div_(FACTOR)  # the bias is added after the factors cancel
