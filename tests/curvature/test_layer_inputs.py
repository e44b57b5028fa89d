"""Second moments of layers' inputs against those collected one window after the other."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from chita.curvature.layer_inputs import input_moments
from chita.errors import ChitaError
from chita.model.forward import evaluating
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from tests.curvature.truth import head, labels, normal
from tests.support.messages import naming


def moments(model: nn.Module, x: Tensor, **keywords: Any) -> dict[str, Tensor]:
    """As found over all of x, by name."""
    weights = Weights(model.double(), **keywords)
    targets = labels(len(x))
    found = input_moments(model, weights, SampleStream([(x, targets)]), samples=len(x))
    with torch.no_grad(), evaluating(model):
        assert found.loss == pytest.approx(functional.cross_entropy(model(x), targets).item())
    return {w.name: moment for w, moment in zip(weights, found.moments, strict=True)}


def mean_outer(inputs: Tensor) -> Tensor:
    """The mean of x x^T over inputs (N, i)."""
    return torch.stack([torch.outer(x, x) for x in inputs]).mean(0)


def conv_inputs(conv: nn.Conv2d, x: Tensor) -> list[Tensor]:
    """What each group multiplies its weights with, (N, i), cut out by hand."""
    x = functional.pad(x, conv._reversed_padding_repeated_twice)
    (kh, kw), (sh, sw), (dh, dw) = conv.kernel_size, conv.stride, conv.dilation
    tops = range(0, x.shape[2] - dh * (kh - 1), sh)
    lefts = range(0, x.shape[3] - dw * (kw - 1), sw)
    cut = [
        image[:, top : top + dh * (kh - 1) + 1 : dh, left : left + dw * (kw - 1) + 1 : dw]
        for image, top, left in product(x, tops, lefts)
    ]
    width = conv.in_channels // conv.groups
    return [
        torch.stack([window[g * width : (g + 1) * width].flatten() for window in cut])
        for g in range(conv.groups)
    ]


def test_linear_layers() -> None:
    x = normal(150, 5)  # more than a chunk, and not a multiple of one
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 3)).double()
    found = moments(model, x)
    torch.testing.assert_close(found["0.weight"][0], mean_outer(x), rtol=1e-10, atol=1e-12)
    hidden = model[0](x).tanh().detach()
    torch.testing.assert_close(found["3.weight"][0], mean_outer(hidden), rtol=1e-10, atol=1e-12)
    assert model.training


pair = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=25, deadline=None)
@given(
    groups=st.integers(1, 3),
    kernel=pair,
    stride=pair,
    dilation=st.sampled_from([(1, 1), (2, 1)]),
    padding=st.sampled_from([(0, 0), (1, 2), "same"]),
    room=st.sampled_from([1, 1 << 24]),
)
def test_convolutions(
    groups: int, kernel: Any, stride: Any, dilation: Any, padding: Any, room: int
) -> None:
    assume(padding != "same" or stride == (1, 1))
    conv = nn.Conv2d(
        2 * groups,
        groups,
        kernel,
        stride=stride,
        dilation=dilation,
        padding=padding,
        groups=groups,
    )
    x = normal(3, 2 * groups, 6, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chita.model.conv_windows.WINDOW_ENTRIES", room)
        found = moments(nn.Sequential(conv, nn.Tanh(), head(groups)), x)["0.weight"]
    expected = torch.stack([mean_outer(inputs) for inputs in conv_inputs(conv, x)])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv3d])
def test_a_moment_gives_the_mean_square_of_the_outputs(kind: Any) -> None:
    conv = kind(4, 6, 2, stride=2, padding=1, padding_mode="circular", groups=2, bias=False)
    x = normal(5, 4, *([5] * len(conv.kernel_size)))
    found = moments(nn.Sequential(conv, nn.Tanh(), head(6)), x)["0.weight"]
    squares = conv(x).square().transpose(0, 1).flatten(1).mean(1)
    w = conv.weight.view(2, 3, -1)
    torch.testing.assert_close(torch.einsum("goi,gij,goj->go", w, found, w).flatten(), squares)


def test_a_layer_called_twice_counts_with_both_calls() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(input=self.layer(x))
            return y.relu_()

    model, x = Twice().double(), normal(8, 3)
    found = moments(model, x)["layer.weight"][0]
    inputs = torch.cat([x, model.layer(x).detach()])
    torch.testing.assert_close(found, mean_outer(inputs), rtol=1e-10, atol=1e-12)


class Odd(nn.Module):
    """A layer that is called, one whose weight alone is used, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.called, self.unseen = nn.Linear(3, 3), nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.called(x) @ self.unseen.weight * self.scale


def test_weights_without_inputs_are_named() -> None:
    model, x = Odd(), normal(6, 3)
    with pytest.raises(ChitaError, match=naming("exclude='unseen.weight'")):
        moments(model, x)
    with pytest.raises(ChitaError, match=naming("exclude='scale'")):
        moments(model, x, include=["called.weight", "scale"])
    with pytest.raises(ChitaError, match=naming("exclude='called.bias'")):
        moments(model, x, include="called.*")
    assert list(moments(model, x, include="called.weight")) == ["called.weight"]
    assert not any(module._forward_hooks for module in model.modules())


def test_a_loss_that_is_not_finite() -> None:
    model = nn.Linear(3, 3).double()
    stream = SampleStream([(normal(4, 3).fill_(torch.nan), labels(4))])
    with pytest.raises(ChitaError, match=naming("loss", re.compile("finite"))):
        input_moments(model, Weights(model), stream, samples=4)
