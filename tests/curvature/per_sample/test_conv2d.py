"""Conv2d against plain autograd."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from tests.curvature.truth import assert_right, head, labels, normal

pair = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=25, deadline=None)
@given(
    groups=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    kernel=pair,
    stride=pair,
    dilation=pair,
    padding=st.one_of(
        st.tuples(st.integers(0, 2), st.integers(0, 2)), st.sampled_from(["same", "valid"])
    ),
    mode=st.sampled_from(["zeros", "circular", "reflect", "replicate"]),
    bias=st.booleans(),
    size=st.tuples(st.integers(7, 8), st.integers(7, 8)),
    rows=st.integers(2, 4),
    batch=st.integers(1, 3),
)
def test_random_shapes(
    groups, channels, kernel, stride, dilation, padding, mode, bias, size, rows, batch
) -> None:  # type: ignore[no-untyped-def]
    assume(padding != "same" or stride == (1, 1))
    conv = nn.Conv2d(
        groups * channels[0],
        groups * channels[1],
        kernel,
        stride=stride,
        dilation=dilation,
        padding=padding,
        padding_mode=mode,
        groups=groups,
        bias=bias,
    )
    model = nn.Sequential(conv, nn.Tanh(), head(groups * channels[1]))
    x = normal(rows * batch, groups * channels[0], *size)
    assert_right(model, x, labels(len(x)), batch=batch)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_pieces_smaller_than_the_layer(
    monkeypatch: pytest.MonkeyPatch, groups: int, batch: int
) -> None:
    monkeypatch.setattr("chita.curvature.per_sample.linear.BLOCK", 200)
    model = nn.Sequential(nn.Conv2d(8, 16, 3, groups=groups), nn.ReLU(True), head(16))
    assert_right(model, normal(9, 8, 5, 5), labels(9), batch=batch)


def test_channels_last() -> None:
    x = normal(6, 4, 6, 6).to(memory_format=torch.channels_last)
    model = nn.Sequential(nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 3, padding=1), head(4))
    assert_right(model.to(memory_format=torch.channels_last), x, labels(6), batch=2)
