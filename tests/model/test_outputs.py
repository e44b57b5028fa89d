"""How models are called, and what of their outputs counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.outputs import answer_of, features_of, logits_of, run_model
from tests.support.messages import naming


class ByKeyword(nn.Module):
    def forward(self, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
        return (a - b) * scale


class ByDict(nn.Module):
    def forward(self, batch: dict[str, Tensor], **options: Any) -> Tensor:
        assert not options
        return batch["a"] - batch["b"]


@pytest.mark.parametrize("model", [ByKeyword(), ByDict()])
def test_a_single_dict_goes_where_the_model_wants_it(model: nn.Module) -> None:
    inputs = {"b": torch.tensor([1.0]), "a": torch.tensor([3.0])}
    assert run_model(model, (inputs,)).item() == 2


def test_other_inputs_are_arguments() -> None:
    assert run_model(ByKeyword(), (torch.tensor([1.0]), torch.tensor([3.0]), 2.0)).item() == -4


def test_logits_by_name_and_everything_else_as_it_is() -> None:
    logits = torch.ones(2, 3)
    assert logits_of(SimpleNamespace(logits=logits, loss=None)) is logits
    assert logits_of({"out": logits, "aux": torch.zeros(2, 3)}) is logits
    assert logits_of(logits) is logits
    nest = {"sum": logits}
    assert logits_of(nest) is nest


def test_the_answer_has_its_classes_last() -> None:
    pictures = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5)
    assert torch.equal(answer_of(pictures), pictures.permute(0, 2, 3, 1))
    assert answer_of(torch.ones(2, 7, 3)).shape == (2, 7, 3)
    assert answer_of(torch.ones(2, 3)).shape == (2, 3)
    assert answer_of(torch.ones(2)).shape == (2, 1)
    first, second = torch.ones(2, 3), torch.zeros(2, 4)
    assert answer_of((first, second)) is first


def test_a_hidden_state_counts_only_without_logits() -> None:
    hidden, logits = torch.ones(2, 7, 3), torch.zeros(2, 5)
    assert answer_of(SimpleNamespace(last_hidden_state=hidden, pooler_output=logits)) is hidden
    both = SimpleNamespace(last_hidden_state=hidden, logits=logits)
    assert answer_of(both) is logits
    assert features_of(both) is None
    assert features_of({"last_hidden_state": hidden}) is hidden


@pytest.mark.parametrize("outputs", [None, {}, (), {"boxes": torch.ones(2)}, torch.tensor(1.0)])
def test_no_answer_is_an_error(outputs: Any) -> None:
    with pytest.raises(
        ChitaError, match=naming("loss='distill'", "outputs", type(outputs).__name__, "logits")
    ):
        answer_of(outputs)
