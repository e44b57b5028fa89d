"""The loss over samples."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from chita.gradients import mean_loss
from chita.stream import SampleStream

from .truth import labels, normal


def test_every_sample_counts_alike() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 3)).double().train()
    x, t = normal(11, 4), labels(11)
    pieces = SampleStream([(x, t)]).take(11, 4)
    found = mean_loss(model, pieces)
    assert all(module.training for module in model.modules())
    expected = functional.cross_entropy(model.eval()(x), t).item()
    assert found == pytest.approx(expected)
    assert mean_loss(model, [(x[:8], t[:8]), (x[8:], t[8:])]) == pytest.approx(expected)


def test_a_loss_of_ones_own() -> None:
    def squares(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        assert not outputs.requires_grad
        return (outputs - targets).square().mean()

    model, x, t = nn.Linear(4, 2).double(), normal(6, 4), normal(6, 2)
    found = mean_loss(model, SampleStream([(x, t)]).take(6, 5), squares)
    assert found == pytest.approx((model(x) - t).square().mean().item())
