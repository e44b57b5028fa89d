"""The largest entries of slowly and of suddenly changing matrices."""

from __future__ import annotations

import pytest
import torch

from chita.solver.layer_wise.nearby_support import NearbySupport
from tests.solver.layer_wise.layers import normal, patterned, random_layer


@pytest.mark.parametrize("k", [0, 1, 40, 119, 120])
def test_is_the_pick_of_every_matrix(k: int) -> None:
    layer = random_layer(0, 10, 12, k=k)
    nearby, scores = NearbySupport(layer), normal(1, 1, 10, 12)
    for step in range(12):
        jump = 100.0 if step % 4 == 3 else 0.02  # a jump leaves the band around the threshold
        scores = scores + jump * normal(step + 2, 1, 10, 12)
        assert torch.equal(nearby.pick(scores), layer.pick(scores))


def test_among_equals_there_are_exactly_k() -> None:
    layer = random_layer(0, 10, 12, k=37)
    nearby, scores = NearbySupport(layer), torch.ones(1, 10, 12)
    for _ in range(3):
        assert int(nearby.pick(scores).sum()) == 37


def test_patterns_are_followed() -> None:
    layer = random_layer(0, 4, 8, k=16, constraint=patterned("2:4", 4, 8))
    scores = normal(5, 1, 4, 8)
    assert torch.equal(NearbySupport(layer).pick(scores), layer.pick(scores))
