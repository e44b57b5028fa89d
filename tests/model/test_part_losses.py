"""The losses of parts of the samples: their values, and the forward passes they take."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.model.part_losses import part_losses
from chita.model.samples.batch import parse_batch
from tests.curvature.truth import labels


class Answer(NamedTuple):
    """Outputs that a loss reads by name, beside a number for all samples."""

    logits: Tensor
    penalty: Tensor


class Answering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3).double()

    def forward(self, x: Tensor) -> Answer:
        return Answer(self.layer(x), self.layer.weight.square().sum())


def test_parts_of_outputs_that_cannot_be_divided_by_samples() -> None:
    """A batch is then cut into a few parts, so that the losses still show a spread."""
    model = Answering()
    inputs = torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(40) % 3

    def loss(outputs: Answer, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs.logits, targets) + outputs.penalty

    losses, sizes = part_losses(model, [parse_batch(0, (inputs, targets))], loss, part=1)
    with torch.no_grad():
        expected = [
            loss(model(inputs[i : i + 5]), targets[i : i + 5]).item() for i in range(0, 40, 5)
        ]
    assert losses.tolist() == pytest.approx(expected)
    assert sizes.tolist() == [5.0] * 8


@pytest.mark.parametrize("sizes", [(4, 4, 4, 2), (4, 4, 3), (6, 5), (4,)])
@pytest.mark.parametrize("at_once", [4, 8, 12])
@pytest.mark.parametrize("divisible", [True, False])
def test_joined_batches_have_the_same_losses_in_fewer_passes(
    sizes: tuple[int, ...], at_once: int, divisible: bool
) -> None:
    model, passes = (nn.Linear(6, 3).double() if divisible else Answering()), list[int]()
    model.register_forward_hook(lambda *_: passes.append(1))
    draw = torch.Generator().manual_seed(0)
    batches = [
        parse_batch(n, (torch.randn(size, 6, dtype=torch.float64, generator=draw), labels(size)))
        for n, size in enumerate(sizes)
    ]

    def loss(outputs: Any, targets: Tensor) -> Tensor:
        if isinstance(outputs, Tensor):
            return functional.cross_entropy(outputs, targets)
        return functional.cross_entropy(outputs.logits, targets) + outputs.penalty

    expected = part_losses(model, batches, loss, 2)
    alone = len(passes)
    passes.clear()
    found = part_losses(model, batches, loss, 2, at_once=at_once)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    if divisible:
        assert len(passes) <= alone
        assert (len(passes) < alone) == (sum(sizes[:2]) <= at_once and len(sizes) > 2)
