"""The floor, and the accuracy on held-out samples."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from chita import ChitaError
from chita.batch import Batch, parse_batch
from chita.floor import CEILING, Floor, held_out_accuracy, sparsity_to_reach

from .pruning import cut, points, tiny


@pytest.mark.parametrize(
    ("floor", "loss", "accuracy", "holds"),
    [
        (Floor(0.5), 1.5, None, True),
        (Floor(0.5), 1.51, None, False),
        (Floor(0.0), 0.9, None, True),  # better than the dense network
        (Floor(0.5), math.nan, None, False),
        (Floor(min_accuracy=90.0), 9.0, 90.0, True),
        (Floor(min_accuracy=90.0), 0.1, 89.9, False),
        (Floor(min_accuracy=90.0), 0.1, None, False),
        (Floor(0.5, 90.0), 1.2, 91.0, True),
        (Floor(0.5, 90.0), 1.6, 91.0, False),
        (Floor(0.5, 90.0), 1.2, 80.0, False),
    ],
)
def test_what_holds(floor: Floor, loss: float, accuracy: float | None, holds: bool) -> None:
    assert floor.holds(loss, 1.0, accuracy) == holds


def test_without_a_sparsity_the_floor_says_how_far() -> None:
    assert sparsity_to_reach(0.7, Floor()) == 0.7
    assert sparsity_to_reach("2:4", Floor(0.1)) == "2:4"
    assert sparsity_to_reach(None, Floor(0.0)) == CEILING
    assert sparsity_to_reach(None, Floor(min_accuracy=0.0)) == CEILING
    with pytest.raises(ChitaError, match=r"sparsity must be .* got None; .* min_accuracy"):
        sparsity_to_reach(None, Floor())


def parsed(batches: list[Any]) -> list[Batch]:
    return [parse_batch(number, given) for number, given in enumerate(batches)]


def test_accuracy_is_the_share_that_is_right() -> None:
    """Over samples, not over batches; in eval mode, and the model is left as it was."""
    x, t = points(25)
    model = nn.Sequential(*tiny(), nn.Dropout(0.9)).train()
    found = held_out_accuracy(model, parsed(cut((x, t), 7)))
    assert model.training and model[-1].training
    with torch.no_grad():
        right = (model.eval()(x).argmax(1) == t).double().mean().item()
    assert found == pytest.approx(100 * right)
    assert 0 < found < 100


def test_what_is_no_classifier_is_an_error() -> None:
    x, t = points(6)
    with pytest.raises(ChitaError, match=r"batches of \(inputs, classes\), got dicts"):
        held_out_accuracy(tiny(), parsed([{"input": x}]))
    for targets, shape in ((x, r"\(6, 6\)"), (t[:, None], r"\(6, 1\)")):
        with pytest.raises(ChitaError, match=f"needs a classifier .* the targets are {shape}"):
            held_out_accuracy(tiny(), parsed([(x, targets)]))
