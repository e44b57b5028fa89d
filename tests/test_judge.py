"""The judge of a pruned network: the floor, and the accuracy on held-out samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from chita import ChitaError
from chita.batch import parse_batch
from chita.floor import Floor
from chita.held_out import HeldOut
from chita.judge import Judge
from chita.ranks import ALONE
from chita.weights import Weights

from .pruning import points, tiny


def judge(model: nn.Module, batches: list[Any], floor: Floor | None) -> Judge:
    parsed = [parse_batch(number, given) for number, given in enumerate(batches)]
    return Judge(HeldOut(model, Weights(model), parsed, functional.mse_loss, ALONE), floor)


def test_a_judge_compares_with_the_model_it_met_first() -> None:
    """A model that gives (1, 0) for all of four samples, two of which are of class 0."""
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([1.0, 0.0]))
    x = torch.ones(4, 3)
    squares = [(x, torch.tensor([[1.0, 1.0]] * 4))]  # a loss of a half
    found = judge(model, squares, Floor(max_loss_increase=0.25))
    with torch.no_grad():
        model.bias.copy_(torch.tensor([9.0, 9.0]))  # another model, as far as the judge may know
    assert found.judge(0.75) == (None, True) and found.holds(0.75)
    assert found.judge(0.76) == (None, False) and not found.holds(0.76)
    assert judge(model, squares, None).judge(99.0) == (None, True)
    assert found.judge(None) == (None, True)


def test_a_judge_tells_the_accuracy_of_the_model_as_it_is() -> None:
    x, t = points(25)
    model = tiny()
    held_out = HeldOut(model, Weights(model), [parse_batch(0, (x, t))], None, ALONE)
    found = Judge(held_out, Floor(min_accuracy=50.0))
    with torch.no_grad():
        model[2].bias.fill_(-99)
        model[2].bias[1] = 99  # always class 1
    right = 100 * (t == 1).double().mean().item()
    assert found.judge(1.0) == (pytest.approx(right), right >= 50)
    assert 0 < right < 50


def test_what_is_no_classifier_is_an_error_at_once() -> None:
    x, t = points(6)
    for batch, message in (
        ({"input": x}, r"needs batches of \(inputs, classes\), got dicts"),
        ((x, x[:, :3]), r"and a tensor of shape \(6, 3\)"),
        ((x, t[:, None]), r"and a tensor of shape \(6, 1\)"),
    ):
        with pytest.raises(ChitaError, match=f"min_accuracy cannot be told: .*{message}"):
            judge(tiny(), [batch], Floor(min_accuracy=50.0))
