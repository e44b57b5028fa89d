"""The forms of a convolution's gradients for a GPU against plain autograd (on any device)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from chita.curvature.per_sample.conv2d import grouped_gradients, sample_products
from tests.curvature.truth import normal


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, 0, 1), (2, 2, 2)])
@pytest.mark.parametrize("batch", [1, 3])
def test_rows_are_the_gradients_of_the_mini_batches(
    groups: int, stride: int, padding: int, dilation: int, batch: int
) -> None:
    rows = 4
    conv = nn.Conv2d(
        4, 6, 3, stride=stride, padding=padding, dilation=dilation, groups=groups, bias=False
    ).double()
    x = normal(rows * batch, 4, 9, 8).double()
    output = conv(x)
    gradient = torch.randn(
        output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    forms = [grouped_gradients(conv, x, gradient, rows, (padding, padding))]
    if groups == 1:
        forms.append(sample_products(conv, x, gradient, rows))
    for row in range(rows):
        some = slice(row * batch, (row + 1) * batch)
        (expected,) = torch.autograd.grad((conv(x[some]) * gradient[some]).sum(), [conv.weight])
        for found in forms:
            torch.testing.assert_close(found[:, row], expected.flatten())
