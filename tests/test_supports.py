"""Which supports a run may have, by what was asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from chita.config import PruneConfig, kept_weights
from chita.l0.constraint import ANY_SUPPORT
from chita.patterned import choose_weights
from chita.supports import Supports

from .pruning import numbers, seeded


def network() -> nn.Sequential:
    return seeded(lambda: nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))).double()


P = 72


def supports(**arguments: Any) -> Supports:
    model = network()
    config = PruneConfig(**{"sparsity": 0.5, **arguments})
    return Supports(model, choose_weights(model, config), config)


def projected(found: Supports, k: int, seed: int = 0) -> torch.Tensor:
    """The places that k weights are kept at, of random ones."""
    return found.constraint(k).project(numbers(P, seed=seed), k)[1]


def test_any_support_by_default() -> None:
    found = supports()
    assert found.any and found.units is None
    assert found.constraint(10) is ANY_SUPPORT
    assert [found.kept(s) for s in (0.0, 0.3, 0.9)] == [kept_weights(P, s) for s in (0.0, 0.3, 0.9)]
    assert found.group_counts(torch.ones(P, dtype=torch.bool)) is None


@pytest.mark.parametrize("sparsity", [0.2, 0.4, 0.5])
def test_limits_of_layers_hold_on_the_way(sparsity: float) -> None:
    found = supports(at_most={"2.weight": 0.25})
    assert not found.any
    k = found.kept(sparsity)
    assert k == kept_weights(P, sparsity)
    kept = projected(found, k)
    assert len(kept) == k
    assert int((kept >= 48).sum()) >= 18  # three quarters of the last 24


def test_uniform_layers_keep_their_shares() -> None:
    found = supports(allocation="uniform")
    kept = projected(found, found.kept(0.5))
    assert (int((kept < 48).sum()), int((kept >= 48).sum())) == (24, 12)


def test_a_pattern_has_groups_and_units() -> None:
    found = supports(sparsity=0.5, pattern="2:4", exclude="2.*")
    assert not found.any
    assert found.units is not None
    assert found.kept(0.5) == 24
    mask = torch.zeros(48, dtype=torch.bool)
    mask[found.constraint(24).project(numbers(48), 24)[1]] = True
    assert found.group_counts(mask) == {2: 12}
