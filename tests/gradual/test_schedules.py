"""When pruning happens during training, and the learning rate between."""

from __future__ import annotations

import math
from typing import Any

import pytest

from chita.errors import ChitaError
from chita.gradual.schedules import PruningSchedule, cosine_restarts, linear, one_shot, polynomial
from tests.support.messages import naming


def test_the_papers_schedule() -> None:
    schedule = polynomial(0.89)
    sixths = [0.89 - 0.39 * (1 - t / 6) ** 3 for t in range(7)]
    assert schedule.sparsities == pytest.approx(sixths, abs=1e-12)
    assert [round(s, 4) for s in schedule.sparsities] == [
        *(0.5, 0.6643, 0.7744, 0.8413, 0.8756, 0.8882, 0.89)
    ]
    assert schedule.epochs == (0, 12, 24, 36, 48, 60, 72)
    assert schedule.sparsities[-1] == 0.89
    assert schedule.epochs[-1] + 28 == 100


def test_linear_and_one_shot() -> None:
    schedule = linear(0.9, first=0.3, steps=4, every=100, begin=50)
    assert schedule.epochs == (50, 150, 250, 350)
    assert schedule.sparsities == pytest.approx([0.3, 0.5, 0.7, 0.9])
    assert one_shot(0.8, at=3) == PruningSchedule((3,), (0.8,))
    assert polynomial(0.8, steps=1) == one_shot(0.8)
    assert polynomial(0.3, steps=3, every=1).sparsities == (0.3, 0.3, 0.3)


def test_the_papers_learning_rate() -> None:
    schedule = polynomial(0.89)
    for e1, e2 in [(0, 12), (36, 48), (72, 100)]:
        for e in (e1, e1 + 0.25, (e1 + e2) / 2, e2 - 0.5):
            cosine = math.cos(math.pi * (e - e1) / (e2 - e1))
            expected = 0.00001 + 0.5 * (0.1 - 0.00001) * (1 + cosine)
            assert cosine_restarts(e, schedule, 100) == pytest.approx(expected, rel=1e-12)
    assert cosine_restarts(100, schedule, 100) == pytest.approx(1e-5)
    assert cosine_restarts(107, schedule, 100) == pytest.approx(1e-5)


def test_the_rate_falls_before_a_late_first_step() -> None:
    late = one_shot(0.5, at=4)
    rates = [cosine_restarts(e, late, 6, highest=1.0, lowest=0.0) for e in range(7)]
    eighth = math.cos(math.pi / 4)
    falls = [1, 0.5 + 0.5 * eighth, 0.5, 0.5 - 0.5 * eighth, 1, 0.5, 0]
    assert rates == pytest.approx(falls, abs=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: polynomial(1.0), naming("sparsities", 1.0)),
        (lambda: polynomial(0.9, steps=0), naming("steps", 0)),
        (lambda: linear(0.9, every=0), naming("every", 0)),
        (lambda: polynomial(0.9, begin=-1), naming("epochs", "-1, 11")),
        (lambda: PruningSchedule((0, 2), (0.5,)), naming("2 epochs", "1 sparsities")),
        (lambda: PruningSchedule((2, 2), (0.5, 0.6)), naming("epochs", (2, 2))),
        (lambda: PruningSchedule((0, 1), (0.6, 0.5)), naming("sparsities", (0.6, 0.5))),
        (lambda: PruningSchedule((), ()), naming("sparsities", ())),
        (lambda: cosine_restarts(0, polynomial(0.9), 72), naming("total_epochs=72", "epoch 72")),
    ],
)
def test_what_does_not_fit_is_told(make: Any, message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        make()
