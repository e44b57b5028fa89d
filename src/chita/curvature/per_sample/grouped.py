"""Rows of a convolution's gradients as one grouped convolution: the fast way on a GPU.

With the R mini-batches laid side by side as groups of channels, the weight gradient of the grouped
convolution is that of each mini-batch apart: one library call, and no copy of the windows. (On a
CPU, grouped convolutions are slow, and products with the windows win.) It is as exact as the
convolutions of the pass itself: with torch's defaults a GPU multiplies float32 in TF32 there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from chita.curvature.per_sample.registry import by_row


def grouped_gradients(
    conv: nn.Conv2d, x: Tensor, gradient: Tensor, rows: int, padding: tuple[int, int]
) -> Tensor:
    """The gradients of the weight, (entries, R).

    Args:
        conv: the layer.
        x: its input, (R * m, C, H, W).
        gradient: by its output, (R * m, O, H', W').
        rows: R.
        padding: the zeros around x that are not part of it yet.
    """
    size = (rows * conv.out_channels, conv.in_channels // conv.groups, *conv.kernel_size)
    groups = rows * conv.groups
    dtype = torch.promote_types(torch.promote_types(x.dtype, gradient.dtype), torch.float32)
    x, gradient = (_side_by_side(tensor.to(dtype), rows) for tensor in (x, gradient))
    weights: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
        x, size, gradient, conv.stride, padding, conv.dilation, groups
    )
    return weights.reshape(rows, -1).t()


def _side_by_side(tensor: Tensor, rows: int) -> Tensor:
    """(R * m, C, H, W) -> (m, R * C, H, W)."""
    return by_row(tensor, rows).transpose(0, 1).flatten(1, 2)
