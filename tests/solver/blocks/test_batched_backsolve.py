from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chita.solver.backsolve import backsolve
from chita.solver.blocks.batched_problem import BatchedPoint, BatchedProblem
from chita.solver.blocks.batched_solve import PADDED, SHARE, alike, batched_backsolve
from tests.solver.batches import Batch, check_equal, close
from tests.solver.problems import dense_minimiser

SIZES, KEPT = [40, 37, 40, 30, 40, 40], [13, 0, 40, 1, 20, 11]  # n = 12 lies among them


def solve(batch: Batch) -> tuple[BatchedProblem, BatchedPoint, float]:
    problem = batch.problem()
    x, jitter = batched_backsolve(problem, problem.start(), problem.unmoved(batch.kept))
    return problem, x, jitter


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_minimisers_are_those_of_each_block_alone(seed: int, alpha: float) -> None:
    batch = Batch(seed, sizes=SIZES, kept=KEPT, alpha=alpha)
    problem, x, jitter = solve(batch)
    check_equal(problem, x, [backsolve(block, start).point for block, start in batch.alone()])
    assert jitter == 0
    for row, (block, start) in enumerate(batch.alone()):
        w = problem.spread(x.support, x.values)[row, : SIZES[row]]
        close(w, dense_minimiser(block, start.support))


@given(
    kept=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    n=st.integers(1, 30),
)
def test_groups_have_supports_of_about_one_size_on_one_side_of_n(kept: list[int], n: int) -> None:
    problem = Batch(0, sizes=[40] * len(kept), kept=kept, n=n).problem()
    groups = alike(problem)
    assert sorted(row for group in groups for row in group) == [
        row for row, k in enumerate(kept) if k
    ]
    for group in groups:
        sizes = [kept[row] for row in group]
        assert max(sizes) <= PADDED * min(sizes)
        assert len({k > n for k in sizes}) == 1
        assert len(group) == 1 or len(group) * max(sizes) <= 40 * len(kept) / SHARE


def test_a_singular_block_alone_gets_jitter() -> None:
    """lambda = 0 and a column of zeros, among blocks that are regular."""
    batch = Batch(1, sizes=[20] * 6, kept=[4] * 6, lam=0.0)
    batch.columns[2, batch.kept[2].nonzero()[0]] = 0.0
    problem, x, jitter = solve(batch)
    assert len(alike(problem)[0]) > 1  # it has company
    alone = [backsolve(block, start) for block, start in batch.alone()]
    assert jitter == pytest.approx(max(solved.jitter for solved in alone))
    assert jitter > 0
    for row, solved in enumerate(alone):
        assert float(x.objective[row]) == pytest.approx(solved.point.objective, rel=1e-6)
        if row != 2:
            assert solved.jitter == 0
            close(problem.spread(x.support, x.values)[row], solved.point.w)


def test_gradients_of_any_scale_are_solved_to_the_same_accuracy() -> None:
    """The padding's own equations must not outweigh those of a block with tiny gradients."""
    batch = Batch(2, sizes=[40] * 8, kept=[5, 6, 6, 6, 6, 6, 6, 6], lam=1e-12)
    batch.columns *= 1e-6
    batch.offset *= 1e-6
    batch.mu *= 1e-12
    problem, x, _ = solve(batch)
    for row, (block, start) in enumerate(batch.alone()):
        w = problem.spread(x.support, x.values)[row]
        close(w, dense_minimiser(block, start.support))


def test_points_that_are_solved_stay_as_they_are() -> None:
    batch = Batch(3, sizes=SIZES, kept=KEPT)
    problem, once, _ = solve(batch)
    before = BatchedPoint(*(part.clone() for part in once))
    twice, _ = batched_backsolve(problem, once, problem.unmoved(batch.kept))
    assert bool((twice.objective <= before.objective).all())
    close(twice.values, before.values)


@pytest.mark.parametrize("lam", [1e-7, 1e-3])
def test_float32_is_solved_as_well_as_one_by_one(lam: float) -> None:
    """With a small ridge the rounding of a float32 Gram product would be larger than mu."""
    batch = Batch(4, sizes=[60] * 4, kept=[40] * 4, lam=lam, dtype=torch.float32)
    problem, x, _ = solve(batch)
    for row, (block, start) in enumerate(batch.alone()):
        w = problem.spread(x.support, x.values)[row]
        expected = dense_minimiser(block, start.support).float()
        torch.testing.assert_close(w, expected, rtol=1e-3, atol=1e-3)
