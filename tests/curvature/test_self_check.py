"""Models that a batched pass gets wrong are noticed, and come out right row by row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.curvature.fisher import gradient_matrix
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from tests.curvature.truth import Messages, assert_right, head, labels, normal


class Attention(nn.Module):
    """Self-attention uses the weight of its out_proj without calling it."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=batch_first)
        self.fc = nn.Linear(4, 3)
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        x, _ = self.attention(x, x, x)
        logits: Tensor = self.fc(x.mean(1 if self.batch_first else 0))
        return logits


class SequenceFirst(nn.Module):
    """Dimension 0 is not the samples inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.fc = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.inner(x.transpose(0, 1)).tanh().mean(0))
        return logits


class Functional(nn.Module):
    """Uses a weight in its module and outside."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.inner, self.fc = nn.Linear(4, 4), nn.Linear(4, 3)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x) + self.factor * functional.linear(x, self.inner.weight).tanh()
        logits: Tensor = self.fc(x)
        return logits


class MixesSamples(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.fc = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        logits: Tensor = self.fc(x - x.mean(0, keepdim=True))
        return logits


class FailsOnMany(nn.Module):
    """Takes no more than two samples at once."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 2:
            raise RuntimeError("two samples at most")
        logits: Tensor = self.fc(x)
        return logits


@pytest.mark.parametrize("batch_first", [False, True])
def test_attention(batch_first: bool) -> None:
    model = Attention(batch_first)
    assert_right(
        model,
        normal(8, 5, 4),
        labels(8),
        batch=2,
        include=None,
        row_by_row=("MultiheadAttention",),
    )


def test_batch_norm_without_running_statistics() -> None:
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), head(4))
    reason = ("gradients", "1.weight", "batch")
    assert_right(model, normal(12, 3, 5, 5), labels(12), batch=3, row_by_row=reason)


def test_samples_mixed_by_hand() -> None:
    reason = ("outputs", "batch")
    assert_right(MixesSamples(), normal(12, 4), labels(12), batch=3, row_by_row=reason)


def test_samples_not_in_dimension_0() -> None:
    reason = ("dimension 0", "Linear")
    assert_right(SequenceFirst(), normal(12, 3, 4), labels(12), batch=3, row_by_row=reason)
    # Even if by chance the sequence is as long as there are samples in the chunk (all but row 0).
    assert_right(SequenceFirst(), normal(12, 11, 4), labels(12), row_by_row=("gradients", "batch"))


@pytest.mark.parametrize("factor", [1.0, 1e-4])
def test_a_weight_used_outside_its_module_too(factor: float) -> None:
    assert_right(Functional(factor), normal(8, 4), labels(8), row_by_row=("inner.weight",))


def test_the_fast_way_raises() -> None:
    reason = ("two samples at most",)
    assert_right(FailsOnMany(), normal(8, 4), labels(8), batch=2, row_by_row=reason)


def test_an_input_changed_in_place() -> None:
    """Only the bias is prunable, so that autograd itself does not need the input any more."""

    class Changes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.fc = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = x.clone()
            hidden = self.inner(x)
            x.mul_(2)
            logits: Tensor = self.fc(hidden.tanh())
            return logits

    model = Changes()
    model.inner.weight.requires_grad_(False)
    assert_right(
        model, normal(8, 4), labels(8), include="inner.bias", row_by_row=("Linear", "in place")
    )


def test_rows_that_are_all_but_learnt_stay_fast() -> None:
    """Gradients of samples with probability 1 are rounding errors, and prove nothing."""
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
    x = normal(64, 4).float()
    t = model(x).argmax(1)
    with torch.no_grad():
        model[2].weight.mul_(60)
        model[2].bias.mul_(60)
    with Messages() as messages:
        gradient_matrix(model, Weights(model), SampleStream([(x, t)]), rows=64, batch=1)
    assert messages.texts == []
