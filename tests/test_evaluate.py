import pytest
import torch
from torch import nn

from chita import ChitaError
from chita.evaluate import accuracy


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
    with pytest.raises(RuntimeError):
        accuracy(model, [(torch.zeros(1, 5), torch.zeros(1))])
    assert model.training


def test_no_batches() -> None:
    with pytest.raises(ChitaError, match="batches are empty"):
        accuracy(nn.Identity(), [])
