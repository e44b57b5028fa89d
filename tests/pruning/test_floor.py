"""The floor, and the accuracy on held-out samples."""

from __future__ import annotations

import math

import pytest

from chita import ChitaError
from chita.pruning.config import resolve_config
from chita.pruning.floor import CEILING, Floor, highest_sparsity
from tests.support.messages import naming


@pytest.mark.parametrize(
    ("floor", "increase", "accuracy", "holds"),
    [
        (Floor(0.5), 0.5, None, True),
        (Floor(0.5), 0.51, None, False),
        (Floor(0.0), -0.1, None, True),  # better than the dense network
        (Floor(0.5), math.nan, None, False),
        (Floor(min_accuracy=90.0), 9.0, 90.0, True),
        (Floor(min_accuracy=90.0), 0.1, 89.9, False),
        (Floor(min_accuracy=90.0), 0.1, None, False),
        (Floor(0.5, 90.0), 0.2, 91.0, True),
        (Floor(0.5, 90.0), 0.6, 91.0, False),
        (Floor(0.5, 90.0), 0.2, 80.0, False),
    ],
)
def test_what_holds(floor: Floor, increase: float, accuracy: float | None, holds: bool) -> None:
    assert floor.holds(increase, accuracy) == holds


def test_without_a_sparsity_the_floor_says_how_far() -> None:
    assert resolve_config(None, {"sparsity": 0.7}).sparsity == 0.7
    assert resolve_config(None, {"sparsity": "2:4", "max_loss_increase": 0.1}).pattern == "2:4"
    assert highest_sparsity(Floor(0.0)) == CEILING
    assert highest_sparsity(Floor(min_accuracy=0.0)) == CEILING
    with pytest.raises(
        ChitaError, match=naming("sparsity", None, "min_accuracy", "max_loss_increase")
    ):
        highest_sparsity(Floor())
