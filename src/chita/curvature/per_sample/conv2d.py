"""Conv2d: a linear layer that is applied to every window of the padded input."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from chita.curvature.per_sample.linear import row_products
from chita.curvature.per_sample.registry import Piece, by_row, register_gradient_rule
from chita.model.conv_windows import padded, windows
from chita.model.hooks import Call

FEW_CHANNELS = 4  # input channels of a layer that reads images


@register_gradient_rule(nn.Conv2d)
def conv2d(call: Call, gradient: Tensor, rows: int) -> Iterator[Piece]:
    """Yield the pieces for input (R * m, C, H, W) and output gradient (R * m, O, H', W')."""
    conv = call.owner.module
    assert isinstance(conv, nn.Conv2d)
    g = by_row(gradient, rows).transpose(1, 2)  # (R, O, m, H', W')
    if "bias" in call.owner.owned:
        yield Piece("bias", 0, g.sum((2, 3, 4)).t())
    if "weight" in call.owner.owned:
        if gradient.is_cuda:
            yield Piece("weight", 0, _on_gpu(conv, call.input, gradient, rows))
            return
        left = g.reshape(rows, conv.groups, conv.out_channels // conv.groups, -1)
        right = windows(conv, by_row(padded(conv, call.input), rows), gradient.shape[2:])
        yield from row_products("weight", left, right)


def _on_gpu(conv: nn.Conv2d, x: Tensor, gradient: Tensor, rows: int) -> Tensor:
    """Compute the gradients of the weight, (entries, R), by the faster of two algorithms."""
    if _has_small_products(conv, gradient.shape[2:]):
        return sample_products(conv, x, gradient, rows)
    x, padding = _with_plain_padding(conv, x)
    return grouped_gradients(conv, x, gradient, rows, padding)


def _has_small_products(conv: nn.Conv2d, size: Sequence[int]) -> bool:
    """Return whether to multiply sample by sample.

    This is faster if the products are smaller than their factors and the windows are the input
    itself, or the input has so few channels that a grouped convolution wastes most of its work.
    """
    inputs = conv.in_channels * math.prod(conv.kernel_size)
    small = conv.out_channels * inputs <= math.prod(size) * (conv.out_channels + inputs)
    plain = math.prod(conv.kernel_size) == 1 or conv.in_channels <= FEW_CHANNELS
    return conv.groups == 1 and plain and small


def sample_products(conv: nn.Conv2d, x: Tensor, gradient: Tensor, rows: int) -> Tensor:
    """Compute the gradients of the weight for every sample, and sum over each row: (entries, R).

    Short sums for many samples use a GPU better than long sums for few rows.
    """
    seen = windows(conv, by_row(padded(conv, x), len(x)), gradient.shape[2:])[:, 0]
    dtype = torch.promote_types(torch.promote_types(x.dtype, gradient.dtype), torch.float32)
    products = torch.bmm(gradient.flatten(2).to(dtype), seen.to(dtype).mT)
    return by_row(products.flatten(1), rows).sum(1).t()


def _with_plain_padding(conv: nn.Conv2d, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """Return the input and the zero padding that is left to the convolution."""
    if conv.padding_mode == "zeros" and not isinstance(conv.padding, str):
        return x, (conv.padding[0], conv.padding[1])
    return padded(conv, x), (0, 0)


def grouped_gradients(
    conv: nn.Conv2d, x: Tensor, gradient: Tensor, rows: int, padding: tuple[int, int]
) -> Tensor:
    """Compute the gradients of the weight, (entries, R), by one grouped convolution.

    Args:
        conv: the layer.
        x: its input, (R * m, C, H, W).
        gradient: the gradient with respect to its output, (R * m, O, H', W').
        rows: R.
        padding: the zero padding that x does not contain.
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
    """Rearrange (R * m, C, H, W) to (m, R * C, H, W)."""
    return by_row(tensor, rows).transpose(0, 1).flatten(1, 2)
