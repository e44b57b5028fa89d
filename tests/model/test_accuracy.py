import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from chita import ChitaError
from chita.model.accuracy import accuracy, count_right
from tests.support.messages import naming


def test_share_of_samples_over_uneven_batches() -> None:
    outputs = torch.eye(4)
    batches = [
        (outputs[:3], torch.tensor([0, 1, 3])),  # two of three
        (outputs[3:], torch.tensor([0])),  # none of one
    ]
    assert accuracy(nn.Identity(), batches) == 50.0


def test_runs_in_eval_mode_and_restores_each_module() -> None:
    model = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm1d(4), nn.Dropout(0.9))
    model.train()
    model[2].eval()
    inputs = torch.eye(4).repeat(50, 1)
    assert accuracy(model, [(inputs, inputs.argmax(dim=1))]) == 100.0
    assert [module.training for module in model] == [True, True, False]
    assert model.training
    assert int(model[1].num_batches_tracked) == 0


def test_modes_are_restored_after_a_failure() -> None:
    model = nn.Linear(3, 2).train()
    with pytest.raises(ChitaError, match=naming("model", "(1, 5)")):
        accuracy(model, [(torch.zeros(1, 5), torch.zeros(1))])
    assert model.training


def test_no_batches() -> None:
    with pytest.raises(ChitaError, match=naming("batches", "accuracy")):
        accuracy(nn.Identity(), [])


def test_right_answers_are_counted_wherever_there_are_classes() -> None:
    outputs = torch.tensor([[3.0, 1.0], [0.0, 2.0], [5.0, 4.0]])
    classes = torch.tensor([0, 0, 0])
    assert count_right(outputs, classes) == (2, 3)
    assert count_right(SimpleNamespace(logits=outputs), classes) == (2, 3)
    assert count_right({"out": outputs}, classes) == (2, 3)
    places = torch.stack([outputs, -outputs], dim=2)  # (3, 2 classes, 2 places)
    assert count_right(places, torch.tensor([[0, 0], [0, 0], [0, -100]])) == (3, 5)


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (torch.zeros(4), torch.zeros(4, dtype=torch.int64)),
        (torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64)),  # the largest of one is no answer
        (torch.zeros(4, 1), torch.zeros(4, 1)),
        (torch.zeros(4, 3), torch.zeros(4)),
        (torch.zeros(4, 3), torch.zeros(4, 3, dtype=torch.int64)),
        ((torch.zeros(4, 3), torch.zeros(4, 3)), torch.zeros(4, dtype=torch.int64)),
        (torch.zeros(4, 3), {"answer": torch.zeros(4)}),
    ],
)
def test_what_has_no_right_answers(outputs: Any, targets: Any) -> None:
    assert count_right(outputs, targets) is None
    if isinstance(outputs, torch.Tensor):
        shape = str(tuple(outputs.shape))
        with pytest.raises(ChitaError, match=naming("accuracy", "(samples, classes)", shape)):
            accuracy(nn.Identity(), [(outputs, targets)])


def test_dicts_have_no_classes() -> None:
    with pytest.raises(
        ChitaError, match=naming("accuracy", "(inputs, classes)", re.compile("dict"))
    ):
        accuracy(nn.Identity(), [{"input": torch.zeros(3, 2)}])
