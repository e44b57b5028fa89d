"""The loss over samples."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from chita.errors import ChitaError
from chita.model.losses import cross_entropy, mean_loss
from chita.model.part_losses import part_losses
from chita.model.samples.batch import parse_batch
from chita.model.samples.stream import SampleStream
from tests.curvature.truth import labels, normal
from tests.support.messages import says


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


@pytest.mark.parametrize("label", [-1, 7])
def test_labels_out_of_range(label: int) -> None:
    targets = torch.tensor([0, label, 2, 1])
    batch = parse_batch(0, (normal(4, 5), targets))
    with pytest.raises(ChitaError) as one:
        mean_loss(nn.Linear(5, 3).double(), [batch])
    with pytest.raises(ChitaError) as parts:
        part_losses(nn.Linear(5, 3).double(), [batch], None, 2)
    assert all(says(str(found.value), "labels", 0, 2, label) for found in (one, parts))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_labels_of_another_type(dtype: torch.dtype) -> None:
    with pytest.raises(ChitaError) as found:
        cross_entropy(normal(4, 3), labels(4).to(dtype))
    assert says(str(found.value), "targets", "int64", "loss=")
