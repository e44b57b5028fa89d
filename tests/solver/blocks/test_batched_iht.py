from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chita.solver.blocks.batched_solve import BatchedPath, batched_iht, paper_steps
from chita.solver.iht_active_set import iht
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem
from chita.solver.stepsize import Path, paper_step
from tests.solver.batches import Batch, check_equal

SIZES, KEPT = [40, 37, 40, 30, 40], [9, 0, 40, 1, 20]
ROWS = torch.arange(5)


@pytest.mark.parametrize("seed", range(3))
def test_paths_are_those_of_each_block_alone(seed: int) -> None:
    batch = Batch(seed, sizes=SIZES, kept=KEPT)
    problem = batch.problem()
    path = BatchedPath(problem, problem.start())
    alone = [Path(block, x, len(x.support)) for block, x in batch.alone()]
    for row, one in enumerate(alone):
        assert float(path.first_breaking_point()[row]) == pytest.approx(one.first_breaking_point())
        assert float(path.first_piece_optimum()[row]) == pytest.approx(one.first_piece_optimum())
    for tau in (0.0, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 100.0):
        points = path.at(ROWS, torch.full((5,), tau, dtype=torch.float64))
        check_equal(problem, points, [one.at(tau) for one in alone])


def test_points_of_some_blocks_each_with_its_own_step() -> None:
    batch = Batch(0, sizes=SIZES, kept=KEPT)
    problem = batch.problem()
    path, rows = BatchedPath(problem, problem.start()), torch.tensor([4, 0])
    points = path.at(rows, torch.tensor([0.02, 0.3], dtype=torch.float64))
    for row, tau, objective in zip((4, 0), (0.02, 0.3), points.objective, strict=True):
        block, x = batch.alone()[row]
        assert float(objective) == pytest.approx(Path(block, x, len(x.support)).at(tau).objective)


def test_equal_weights_leave_and_join_by_their_index() -> None:
    """All columns and weights equal: every swap is between equals, and the lowest indices stay."""
    batch = Batch(0, sizes=[8, 8], kept=[3, 5])
    batch.columns[:] = batch.columns[0, 0]
    batch.w0[:] = 1.0
    batch.kept = torch.arange(8) >= torch.tensor([[5], [3]])
    problem = batch.problem()
    x = problem.start()
    # Where |1 - tau g| = tau |g|, outside and inside are equal, and g is 2 for these.
    path = BatchedPath(problem, x)
    for part in (path.g_S, path.g_out):
        part.fill_(2.0)
    path.pull[path.pull.isfinite()] = 2.0
    points = path.at(torch.arange(2), torch.full((2,), 0.25, dtype=torch.float64))
    assert problem.inside(points).long().tolist() == [[1] * 3 + [0] * 5, [1] * 5 + [0] * 3]


@given(st.integers(0, 10**6), st.sampled_from([1.1, 1.5, 3.0]))
@settings(deadline=None)
def test_steps_are_those_of_each_block_alone(seed: int, gamma: float) -> None:
    batch = Batch(seed, sizes=SIZES, kept=KEPT)
    problem = batch.problem()
    steps = paper_steps(BatchedPath(problem, problem.start()), ROWS, gamma)
    step = paper_step(gamma)
    alone = [step(Path(block, x, len(x.support))) for block, x in batch.alone()]
    check_equal(problem, steps, alone)


def one_after_the_other(batch: Batch, options: Options) -> tuple[list[Iterate], list[int]]:
    points, updates = [], []
    step = paper_step(options.gamma)
    for block, x in batch.alone():
        trace = Trace(options.iterations)
        if len(x.support):
            x = iht(block, x, options.iterations, step=step, tol=options.tol, trace=trace)
        points.append(x)
        updates.append(trace.iterations)
    return points, updates


@given(st.integers(0, 10**6), st.sampled_from([0, 1, 5, 20]), st.sampled_from([0.0, 1.0]))
@example(147, 20, 0.0)  # the objective of a block that keeps all weights is negative by rounding
@settings(deadline=None, max_examples=50)
def test_iht_stops_in_each_block_as_it_does_alone(seed: int, iterations: int, alpha: float) -> None:
    batch = Batch(seed, sizes=SIZES, kept=KEPT, alpha=alpha)
    options, problem = Options(iterations=iterations, tol=1e-3), batch.problem()
    points, updates, _ = batched_iht(problem, problem.start(), options)
    expected, each = one_after_the_other(batch, options)
    check_equal(problem, points, expected)
    assert updates == max(each)


def test_whether_all_have_stopped_is_told() -> None:
    batch = Batch(0, sizes=SIZES, kept=KEPT)
    _, each = one_after_the_other(batch, Options(iterations=1000))
    needed = max(each)
    for iterations, settled in ((needed - 1, False), (needed, True), (needed + 1, True)):
        problem = batch.problem()
        found = batched_iht(problem, problem.start(), Options(iterations=iterations))
        assert found[1:] == (min(iterations, needed), settled)


def test_zeros_in_the_support_grow_by_their_gradient() -> None:
    """w0 has fewer non-zeros than are kept: those with the largest gradients are the first."""
    batch = Batch(5, sizes=[20, 20], kept=[9, 9])
    batch.w0[0, 5:] = 0.0
    batch.kept[0] = torch.arange(20) < 9
    problem = batch.problem()
    path = BatchedPath(problem, problem.start())
    tau = torch.full((2,), 1e-3, dtype=torch.float64)
    alone = [Path(block, x, 9).at(1e-3) for block, x in batch.alone()]
    check_equal(problem, path.at(torch.arange(2), tau), alone)


def test_float32_follows_float64() -> None:
    wide = Batch(0, sizes=SIZES, kept=KEPT)
    narrow = Batch(0, sizes=SIZES, kept=KEPT, dtype=torch.float32)
    objectives = []
    for batch in (wide, narrow):
        problem = batch.problem()
        objectives.append(batched_iht(problem, problem.start(), Options(iterations=2))[0].objective)
    torch.testing.assert_close(*objectives, rtol=1e-4, atol=0)


def test_an_overflow_ends_the_steps() -> None:
    batch = Batch(0, sizes=[6, 6], kept=[3, 3], dtype=torch.float32)
    batch.columns[0] *= 1e30
    problem = batch.problem()
    points, _, _ = batched_iht(problem, problem.start(), Options(iterations=5))
    block, x = batch.alone()[1]
    expected, _ = one_after_the_other(batch, Options(iterations=5))
    assert float(points.objective[1]) == pytest.approx(expected[1].objective, rel=1e-4)
    assert Problem.objective(block, x.w, x.rho) >= float(points.objective[1])
