"""The path of a run without a plan: how far each stage goes, and the search for a floor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chita.pruning.schedule import (
    BISECTIONS,
    CLOSE,
    FINEST,
    FIRST_RISE,
    LEAST,
    PATIENCE,
    StagePath,
)

shares = st.floats(0, 0.995)
Loss = Callable[[float], float | None]


@dataclass(frozen=True)
class Row:
    sparsity: float
    choice_loss: float | None
    accepted: bool = True


def row(number: int, sparsity: float, loss: float | None, accepted: bool = True) -> Row:
    return Row(sparsity, loss, accepted)


def walk(path: StagePath, loss: Loss, floor: float = 1.0) -> list[Row]:
    """All stages, where those up to the sparsity `floor` are accepted."""
    rows: list[Row] = []
    while (sparsity := path.next(rows)) is not None:
        rows.append(row(len(rows) + 1, sparsity, loss(sparsity), sparsity <= floor))
        assert len(rows) <= path.stages
    return rows


def sparsities(rows: list[Row]) -> list[float]:
    return [row.sparsity for row in rows]


@given(shares, shares, st.integers(1, 70), st.lists(st.one_of(st.none(), st.floats(0, 10))))
def test_it_never_falls_and_ends_at_the_target(
    start: float, target: float, stages: int, losses: list[float | None]
) -> None:
    """Whatever the losses are."""
    left = iter(losses)
    found = sparsities(walk(StagePath(start, target, stages), lambda _: next(left, None)))
    assert len(found) <= stages
    assert found == sorted(found)
    assert found[-1] == target
    assert found[0] == (target if stages == 1 else min(start, target))


@given(shares, shares, st.integers(1, 70), st.floats(0, 0.99))
def test_the_last_share_of_the_stages_stays_at_the_target(
    start: float, target: float, stages: int, hold: float
) -> None:
    found = sparsities(walk(StagePath(start, target, stages, hold), lambda s: 1 + s))
    held = min(int(hold * stages), stages - 1)
    assert len(found) <= stages and found == sorted(found)
    assert found[-held - 1 :] == [target] * (held + 1)


def test_it_stays_at_the_target_while_the_loss_falls() -> None:
    """The loss falls by 2 % a stage down to one half, and does not change afterwards."""
    path = StagePath(0.2, 0.9, 60)
    losses = iter([*(0.98**stage for stage in range(35)), *[0.5] * 25])
    rows = walk(path, lambda _: next(losses))
    stays = [row for row in rows if row.sparsity == 0.9]
    assert 0.5 == stays[-1].choice_loss == stays[-1 - PATIENCE].choice_loss
    assert 35 + PATIENCE <= len(rows) < 35 + 3 * PATIENCE
    assert len(walk(path, lambda _: None)) == 60  # nothing is known


@given(shares, shares, st.integers(1, 70), st.lists(st.floats(0, 10)))
def test_a_stage_below_the_target_removes_some_weights(
    start: float, target: float, stages: int, losses: list[float]
) -> None:
    left = iter(losses)
    found = sparsities(walk(StagePath(start, target, stages), lambda _: next(left, None)))
    for before, after in pairwise(found):
        assert after == target or 1 - after <= (1 - LEAST) * (1 - before) + 1e-12


@given(shares, shares, st.floats(0, 1))
def test_it_starts_where_the_mask_alone_costs_little(
    start: float, target: float, bend: float
) -> None:
    def loss(sparsity: float) -> float:
        return 1.0 if sparsity <= bend else 1 + 2 * FIRST_RISE

    path = StagePath(start, target, 60).starting_late(loss)
    first = path.next([])
    assert first is not None and min(start, target) <= first <= target
    assert first <= max(bend, min(start, target))
    assert min(bend, target) - first <= (target - min(start, target)) / 2**BISECTIONS + 1e-12


def test_a_late_start_saves_stages() -> None:
    early = StagePath(0.2, 0.98, 60)
    late = early.starting_late(lambda sparsity: float(sparsity > 0.6) + 1)
    counts = [
        len([row for row in walk(path, lambda s: 1 + 20 * s) if row.sparsity < 0.98])
        for path in (early, late)
    ]
    assert counts[1] < counts[0]


def test_a_loss_that_is_not_a_number_does_not_start_late() -> None:
    path = StagePath(0.2, 0.9, 60).starting_late(lambda _: math.nan)
    assert path.next([]) == 0.2


@given(shares, shares, st.integers(5, 70), st.integers(2, 60))
@example(0.0, 0.625, 36, 18)  # both steps would be shorter than the least one
def test_it_is_faster_where_the_loss_does_not_rise(
    start: float, target: float, stages: int, done: int
) -> None:
    path = StagePath(start, target, stages)
    before = walk(path, lambda _: 1.0)[: min(done, stages - 4)]
    *most, last = before
    calm = path.next(before)
    risen = path.next([*most, row(len(before), last.sparsity, 1.02)])
    if last.sparsity == target:
        return
    assert calm is not None and risen is not None
    assert calm >= risen >= last.sparsity
    least = 1 - (1 - LEAST) * (1 - last.sparsity)  # a shorter step is extended to this
    if len(before) > 1 and last.sparsity < target - 0.01:
        assert risen > last.sparsity
        assert calm > risen or calm == least


def test_stages_saved_on_the_flat_part_make_the_steps_on_the_slope_smaller() -> None:
    path = StagePath(0.2, 0.98, 60)
    bent = sparsities(walk(path, lambda s: 1.0 if s < 0.8 else 1 + 20 * (s - 0.8)))
    even = sparsities(walk(path, lambda s: 1 + 20 * s))
    assert sum(s < 0.8 for s in bent) < 0.7 * sum(s < 0.8 for s in even)
    assert sum(0.8 <= s < 0.98 for s in bent) > 1.2 * sum(0.8 <= s < 0.98 for s in even)


def test_a_rise_that_is_no_rise() -> None:
    """Half a percent is what sampling does; a first loss is no rise yet, nor a fall."""
    path = StagePath(0.2, 0.9, 10)
    first = row(1, 0.2, 1.0)
    little, much = row(2, 0.3, 1.005), row(2, 0.3, 1.015)
    assert path.next([first, little]) == path.next([first, row(2, 0.3, 0.5)])
    assert path.next([first, little]) > path.next([first, much])  # type: ignore[operator]
    assert path.next([first]) == path.next([row(1, 0.2, None)])


@given(shares, st.floats(0.5, 0.99), st.floats(0, 0.99), st.integers(40, 70))
def test_the_floor_is_found_to_within_close(
    start: float, target: float, floor: float, stages: int
) -> None:
    """With stages to spare; the highest that is accepted is next to one that is not."""
    rows = walk(StagePath(start, target, stages), lambda _: 1.0, floor)
    accepted = [row.sparsity for row in rows if row.accepted]
    refused = [row.sparsity for row in rows if not row.accepted]
    assert accepted == sorted(accepted) and refused == sorted(refused, reverse=True)
    if floor >= target:
        assert not refused and accepted[-1] == target
        return
    reached = max(accepted, default=0.0)
    assert reached <= floor < min(refused)
    assert len(rows) == stages or min(refused) - reached <= max(CLOSE * (1 - min(refused)), FINEST)


def test_a_search_halves_what_is_open() -> None:
    path = StagePath(0.2, 0.9, 60)
    rows = [row(1, 0.2, 1.0), row(2, 0.5, 1.0), row(3, 0.7, 1.0, accepted=False)]
    assert path.next(rows) == pytest.approx(0.6)
    rows.append(row(4, 0.6, 1.0))
    assert path.next(rows) == pytest.approx(0.65)
    rows.append(row(5, 0.65, 1.0, accepted=False))
    assert path.next(rows) == pytest.approx(0.625)
    assert path.next([*rows, row(6, 0.645, 1.0)]) is None  # within 2 % of the density


def test_a_plan_is_kept_until_a_stage_is_refused() -> None:
    plan = [0.3, 0.5, 0.7, 0.9, 0.9]
    path = StagePath(0.2, 0.9, 5, plan=plan)
    assert sparsities(walk(path, lambda _: 1.0)) == plan
    assert sparsities(walk(path, lambda _: 1.0, floor=0.65)) == pytest.approx(
        [0.3, 0.5, 0.7, 0.6, 0.65]
    )


def test_a_floor_that_nothing_keeps_ends_at_almost_dense() -> None:
    rows = walk(StagePath(0.2, 0.9, 60), lambda _: 1.0, floor=-1.0)
    assert not any(row.accepted for row in rows)
    assert rows[-1].sparsity <= 2 * CLOSE
    assert all(after == before / 2 for before, after in pairwise(sparsities(rows)))
    assert len(rows) < 10
