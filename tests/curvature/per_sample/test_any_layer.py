"""Layers without a rule of their own against plain autograd."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from tests.curvature.truth import assert_right, head, labels, normal


class Scale(nn.Module):
    """A custom layer with an argument that is not a tensor."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(1, 2, size))

    def forward(self, x: Tensor, power: float, *, shift: Tensor | None = None) -> Tensor:
        scaled = x * self.weight**power
        return scaled if shift is None else scaled + shift * self.weight


class Scaled(nn.Module):
    def __init__(self, size: int, with_shift: bool) -> None:
        super().__init__()
        self.scale = Scale(size)
        self.head = head(size)
        self.with_shift = with_shift

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.scale(x, 2.0, shift=x.sin() if self.with_shift else None))
        return logits


class Standardised(nn.Conv2d):
    """A subclass that computes something else: Conv2d's rule would be wrong."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.conv2d(input, self.weight / self.weight.norm(), self.bias)


@settings(max_examples=15, deadline=None)
@given(
    kind=st.sampled_from(
        [
            (nn.Conv1d, 1),
            (nn.Conv3d, 3),
            (nn.ConvTranspose1d, 1),
            (nn.ConvTranspose2d, 2),
            (nn.ConvTranspose3d, 3),
        ]
    ),
    stride=st.integers(1, 2),
    groups=st.integers(1, 2),
    bias=st.booleans(),
    rows=st.integers(2, 4),
    batch=st.integers(1, 2),
)
def test_other_convolutions(
    kind: tuple[type[nn.Module], int], stride: int, groups: int, bias: bool, rows: int, batch: int
) -> None:
    layer = kind[0](2 * groups, 2 * groups, 2, stride=stride, groups=groups, bias=bias)
    x = normal(rows * batch, 2 * groups, *[4] * kind[1])
    model = nn.Sequential(layer, nn.Tanh(), head(2 * groups))
    assert_right(model, x, labels(len(x)), batch=batch)


@pytest.mark.parametrize("batch", [1, 3])
def test_embedding_and_layer_norm(batch: int) -> None:
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(7, 5)
            self.norm = nn.LayerNorm(5)
            self.fc = nn.Linear(5, 3)

        def forward(self, tokens: Tensor) -> Tensor:
            logits: Tensor = self.fc(self.norm(self.embedding(tokens)).mean(1))
            return logits

    assert_right(Text(), labels(12 * 4, 7).view(12, 4), labels(12), batch=batch)


@pytest.mark.parametrize("with_shift", [False, True])
def test_custom_layer(with_shift: bool) -> None:
    assert_right(Scaled(4, with_shift), normal(8, 4), labels(8), batch=2)


def test_batch_norm_with_running_statistics() -> None:
    norm = nn.BatchNorm2d(4)
    norm.running_mean, norm.running_var = torch.arange(4.0), torch.arange(1.0, 5.0)
    assert_right(
        nn.Sequential(nn.Conv2d(3, 4, 3), norm, head(4)), normal(8, 3, 5, 5), labels(8), batch=2
    )


def test_subclass_with_its_own_forward() -> None:
    model = nn.Sequential(Standardised(3, 4, 3), nn.ReLU(), head(4))
    assert_right(model, normal(8, 3, 5, 5), labels(8), batch=2)


def test_method_replaced_on_the_instance() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    first = model[0]
    first.forward = lambda x: functional.linear(x, first.weight**2)  # type: ignore[method-assign]
    assert_right(model, normal(8, 4), labels(8), include="*weight")
