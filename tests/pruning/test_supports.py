"""Which supports a run may have, by what was asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from chita.pruning.config import PruneConfig, kept_weights
from chita.pruning.supports import Supports, choose_weights, within_limits
from chita.solver.constraints.constraint import ANY_SUPPORT
from tests.support.pruning import numbers, seeded


def network() -> nn.Sequential:
    return seeded(lambda: nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))).double()


P = 72


def supports(**arguments: Any) -> Supports:
    model = network()
    config = PruneConfig(**{"sparsity": 0.5, **arguments}, recover=False)
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


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({}, 0),
        ({"at_most": {"0.weight": 0.5}}, 24),  # of 48
        ({"at_most": {"*": 0.0}}, P),
        ({"allocation": {"0.weight": 0.25}}, 36),
        ({"allocation": {"0.weight": 0.25}, "at_most": {"2.weight": 0.9}}, 39),  # 2.4 of 24
        ({"allocation": "uniform"}, 0),
        ({"pattern": "2:4", "exclude": "2.*"}, 24),
    ],
)
def test_a_floor_is_searched_for_as_far_as_limits_allow(limits: dict[str, Any], kept: int) -> None:
    model = network()
    config = PruneConfig(sparsity=0.99, max_loss_increase=0.1, **limits, recover=False)
    weights = choose_weights(model, config)
    found = within_limits(config, weights)
    assert Supports(model, weights, found).kept(found.sparsity) == kept
    assert found.sparsity == 0.99 or kept > 0
    lower = PruneConfig(
        sparsity=0.0, max_loss_increase=0.1, at_most={"0.weight": 0.5}, recover=False
    )
    assert within_limits(lower, choose_weights(model, lower)) is lower
