"""Parameters on the same memory are one weight."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from chita.errors import ChitaError
from chita.model.ties import memory_of, merged_ties
from chita.model.weights import Weights
from tests.support.messages import naming


def tied() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].weight = nn.Parameter(model[0].weight.detach())
    return model


def test_a_tie_by_memory_counts_once() -> None:
    weights = Weights(tied())
    assert [weight.name for weight in weights] == ["0.weight"]
    assert [weight.name for weight in Weights(tied(), include="2.weight")] == ["0.weight"]
    with pytest.raises(ChitaError, match=naming("include", "exclude")):
        Weights(tied(), include="0.weight", exclude="2.weight")


def test_a_head_tied_to_an_embedding_stays_dense() -> None:
    model = nn.Sequential(nn.Embedding(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[2].weight = nn.Parameter(model[0].weight.detach())
    assert [weight.name for weight in Weights(model)] == ["1.weight"]


def test_ties_are_one_object_within_the_context() -> None:
    model = tied()
    first, second = model[0].weight, model[2].weight
    with merged_ties(model):
        assert model[2].weight is model[0].weight is first
        model(torch.ones(1, 4)).sum().backward()
        assert first.grad is not None and second.grad is None
    assert model[0].weight is first and model[2].weight is second


def test_an_overlap_in_another_shape_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
    model[1].weight = nn.Parameter(model[0].weight.detach().t())
    with pytest.raises(ChitaError, match=naming("0.weight", "1.weight", "exclude")):
        Weights(model)
    assert len(Weights(model, include="*", exclude=["*.weight"]).entries) == 2


def test_views_of_one_memory_without_common_entries_are_apart() -> None:
    flat = torch.randn(8, 8)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(4, 8))
    model[0].weight, model[2].weight = nn.Parameter(flat[:, ::2]), nn.Parameter(flat[:, 1::2])
    assert memory_of(model[0].weight) != memory_of(model[2].weight)
    assert len(Weights(model).entries) == 3
