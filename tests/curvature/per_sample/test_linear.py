"""Linear layers against plain autograd."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.curvature.truth import assert_right, labels, normal


class OverTheMiddle(nn.Module):
    """Linear layers on (B, ..., inputs); the mean over the middle dimensions gives the logits."""

    def __init__(self, inputs: int, hidden: int, bias: bool) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, hidden, bias=bias)
        self.act = nn.LeakyReLU(0.1, inplace=True)  # in place, and never dead
        self.second = nn.Linear(hidden, 3, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.second(self.act(self.first(x)))
        return logits if logits.ndim == 2 else logits.flatten(1, -2).mean(1)


@settings(max_examples=25, deadline=None)
@given(
    middle=st.lists(st.integers(1, 3), max_size=2),
    rows=st.integers(1, 5),
    batch=st.integers(1, 3),
    inputs=st.integers(1, 6),
    hidden=st.integers(4, 9),
    bias=st.booleans(),
)
def test_random_shapes(
    middle: list[int], rows: int, batch: int, inputs: int, hidden: int, bias: bool
) -> None:
    x = normal(rows * batch, *middle, inputs)
    assert_right(OverTheMiddle(inputs, hidden, bias), x, labels(len(x)), batch=batch)


@pytest.mark.parametrize("batch", [1, 4])
def test_pieces_smaller_than_the_layer(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr("chita.curvature.per_sample.linear.BLOCK", 150)
    assert_right(OverTheMiddle(7, 33, True), normal(20, 7), labels(20), batch=batch)


def test_inputs_given_by_keyword() -> None:
    class ByKeyword(OverTheMiddle):
        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.second(input=self.first(input=x).relu())
            return logits

    assert_right(ByKeyword(4, 5, True), normal(6, 4), labels(6))
