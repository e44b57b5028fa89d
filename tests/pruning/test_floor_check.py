"""A pruned network is measured on held-out samples and checked against the floor."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from chita import ChitaError
from chita.model.samples.batch import parse_batch
from chita.model.weights import Weights
from chita.pruning.floor import Floor, FloorCheck, accuracy_error
from chita.pruning.held_out import HeldOut, Measurement
from chita.solver.ranks import ALONE
from tests.support.messages import naming
from tests.support.pruning import points, tiny


def held_out(model: nn.Module, batches: list[Any]) -> HeldOut:
    parsed = [parse_batch(number, given) for number, given in enumerate(batches)]
    return HeldOut(model, Weights(model), parsed, functional.mse_loss, ALONE)


def test_a_check_compares_with_the_model_at_its_start() -> None:
    """A model that gives (1, 0) for all of four samples, two of which are of class 0."""
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([1.0, 0.0]))
    x = torch.ones(4, 3)
    squares = [(x, torch.tensor([[1.0, 1.0]] * 4))]  # a loss of a half
    found = FloorCheck(held_out(model, squares), Floor(max_loss_increase=0.25))
    for bias, loss, accepted in ((1.0, 0.5, True), (1.7, 0.745, True), (1.8, 0.82, False)):
        with torch.no_grad():
            model.bias[0] = bias
        measured = found.measure()
        assert measured.loss == pytest.approx(loss)
        assert measured.accepted == accepted
        assert held_out(model, squares).measure() == replace(measured, accepted=True)
    assert held_out(model, []).measure() == Measurement()


def test_a_check_measures_the_accuracy_of_the_current_model() -> None:
    x, t = points(25)
    model = tiny()
    measured_on = HeldOut(model, Weights(model), [parse_batch(0, (x, t))], None, ALONE)
    found = FloorCheck(measured_on, Floor(min_accuracy=50.0))
    with torch.no_grad():
        model[2].bias.fill_(-99)
        model[2].bias[1] = 99  # always class 1
    right = 100 * (t == 1).double().mean().item()
    measured = found.measure()
    assert measured.accuracy == pytest.approx(right) and not measured.accepted
    assert 0 < right < 50


@pytest.mark.parametrize("samples", [100, 10_000])
def test_a_floor_must_be_kept_by_one_standard_error(samples: int) -> None:
    """93 % right of 100 samples may be luck: 2.6 points are missing, of 10,000 only 0.26."""
    t = (torch.arange(samples) % 100 < 93).long()
    model = nn.Linear(1, 2)
    nn.init.zeros_(model.weight)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([0.0, 1.0]))  # always class 1
    measured_on = HeldOut(
        model, Weights(model), [parse_batch(0, (t[:, None].float(), t))], None, ALONE
    )
    for floor, kept in ((92.0, samples == 10_000), (90.0, True), (92.9, False)):
        assert FloorCheck(measured_on, Floor(min_accuracy=floor)).measure().accepted == kept
    assert accuracy_error(93.0, samples) == pytest.approx(25.5 / samples**0.5, rel=0.06)
    assert accuracy_error(100.0, samples) > 0


def test_a_loss_must_keep_to_its_floor_by_one_standard_error() -> None:
    """The increase of the loss from sample to sample: its spread counts, not that of the losses."""
    model = nn.Linear(1, 1, bias=False)
    x = torch.tensor([[1.0], [1.0], [1.0], [3.0]])
    targets = torch.tensor([[5.0], [-50.0], [500.0], [0.0]])

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs + targets).abs().mean()

    with torch.no_grad():
        model.weight.fill_(0.0)
    measured_on = HeldOut(model, Weights(model), [parse_batch(0, (x, targets))], loss, ALONE)
    checks = {
        bound: FloorCheck(measured_on, Floor(max_loss_increase=bound)) for bound in (1.4, 1.6)
    }
    with torch.no_grad():
        model.weight.fill_(1.0)  # the losses change by 1, -1, 1 and 3: 1 on average
    error = torch.tensor([1.0, -1.0, 1.0, 3.0]).std().item() / 2
    assert 1.4 < 1 + error < 1.9
    assert not checks[1.4].measure().accepted and checks[1.6].measure().accepted == (
        1 + error <= 1.6
    )


def test_what_is_no_classifier_is_an_error_at_once() -> None:
    x, t = points(6)
    for batch, parts in (
        ({"input": x}, ("(inputs, classes)", re.compile("dict"))),
        ((x, x[:, :3]), (re.compile(r"\(6, 3\).*\(6, 3\)"),)),
        ((x, t[:, None].expand(-1, 2)), ("(6, 2)",)),
    ):
        with pytest.raises(ChitaError, match=naming("min_accuracy", *parts)):
            FloorCheck(held_out(tiny(), [batch]), Floor(min_accuracy=50.0))
