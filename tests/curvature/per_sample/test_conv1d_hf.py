"""Hugging Face's Conv1D against plain autograd."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers.pytorch_utils import Conv1D

from chita.curvature.per_sample import conv1d_hf
from chita.curvature.per_sample.registry import rule_for
from tests.curvature.truth import assert_right, labels, normal


@settings(max_examples=15, deadline=None)
@given(
    inputs=st.integers(1, 5),
    outputs=st.integers(1, 5),
    tokens=st.integers(0, 3),
    rows=st.integers(2, 4),
    batch=st.integers(1, 3),
)
def test_random_shapes(inputs: int, outputs: int, tokens: int, rows: int, batch: int) -> None:
    shape = (rows * batch, tokens, inputs) if tokens else (rows * batch, inputs)
    model = nn.Sequential(Conv1D(outputs, inputs), nn.Tanh(), Conv1D(3, outputs))
    if tokens:
        model.append(nn.Flatten()).append(nn.Linear(3 * tokens, 3))
    assert_right(model, normal(*shape), labels(rows * batch), batch=batch)


class Mine(Conv1D):  # type: ignore[misc]
    """A subclass that inherits the forward pass."""


@pytest.mark.parametrize("kind", [Conv1D, Mine])
def test_the_rule_is_used(monkeypatch: pytest.MonkeyPatch, kind: type[Conv1D]) -> None:
    assert rule_for(kind(3, 2)) is conv1d_hf.conv1d_hf
    monkeypatch.setattr("chita.curvature.gradient_rows.any_layer", None)  # fails if it is needed
    monkeypatch.setattr("chita.curvature.per_sample.linear.BLOCK", 20)
    model = nn.Sequential(kind(6, 4), nn.Tanh(), nn.Linear(6, 3))
    assert_right(model, normal(6, 4), labels(6), batch=2)
