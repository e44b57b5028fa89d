"""Watching the calls of modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chita.model.hooks import Args, Keywords, first_input, owners, watching
from chita.model.weights import Weights


class ByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        seen: Tensor = self.layer(input=x)
        return self.layer(seen)


def test_every_call_is_seen_until_the_end_of_the_context() -> None:
    model, seen = ByKeyword(), list[Tensor]()

    def note(module: nn.Module, args: Args, keywords: Keywords, output: Any) -> None:
        assert module is model.layer
        seen.append(first_input(args, keywords))

    x = torch.ones(1, 2)
    with watching([model.layer], note):
        model(x)
    model(x)
    assert len(seen) == 2
    assert seen[0] is x


def test_a_hook_can_replace_the_output_and_is_removed_after_an_error() -> None:
    layer = nn.Linear(2, 2)
    with (
        pytest.raises(KeyError),
        watching([layer], lambda module, args, keywords, output: torch.zeros_like(output)),
    ):
        assert not layer(torch.ones(1, 2)).any()
        raise KeyError
    assert layer(torch.ones(1, 2)).any()


def test_a_shared_weight_has_several_owners() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    found = owners(model, Weights(model))
    assert [owner.module for owner in found] == list(model)
    assert [owner.owned["weight"].name for owner in found] == ["0.weight", "0.weight"]
