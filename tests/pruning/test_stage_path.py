"""The path of a run without a plan: how far each stage goes, and the search for a floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chita.pruning.schedule import CLOSE, FINEST, StagePath

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
    assert len(found) == stages
    assert found == sorted(found)
    assert found[-1] == target
    assert found[0] == (target if stages == 1 else min(start, target))


@given(shares, shares, st.integers(1, 70), st.floats(0, 0.99))
def test_the_last_share_of_the_stages_stays_at_the_target(
    start: float, target: float, stages: int, hold: float
) -> None:
    found = sparsities(walk(StagePath(start, target, stages, hold), lambda s: 1 + s))
    held = min(int(hold * stages), stages - 1)
    assert len(found) == stages and found == sorted(found)
    assert found[stages - held - 1 :] == [target] * (held + 1)
    rising = sparsities(walk(StagePath(start, target, stages - held), lambda s: 1 + s))
    assert found == rising + [target] * held


@given(shares, shares, st.integers(5, 70), st.integers(2, 60))
def test_it_is_faster_where_the_loss_does_not_rise(
    start: float, target: float, stages: int, done: int
) -> None:
    path = StagePath(start, target, stages)
    before = walk(path, lambda _: 1.0)[: min(done, stages - 4)]
    *most, last = before
    calm = path.next(before)
    risen = path.next([*most, row(len(before), last.sparsity, 1.02)])
    assert calm is not None and risen is not None
    assert calm >= risen >= last.sparsity
    if len(before) > 1 and last.sparsity < target - 0.01:
        assert calm > risen > last.sparsity


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
