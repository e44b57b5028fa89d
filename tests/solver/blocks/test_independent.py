import logging
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita.solver import solve
from chita.solver.algorithm import Layout
from chita.solver.blocks import independent as blocks_module
from chita.solver.blocks.batched_problem import BatchedPoint, BatchedProblem, BatchedSolution
from chita.solver.blocks.block_batch import block_batches
from chita.solver.blocks.independent import alone, cut_blocks, one_by_one, solve_independent
from chita.solver.iht_active_set import iht, refine_by_backsolve
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem
from chita.solver.solve import ALGORITHMS, batched_bso, solve_problem
from chita.solver.stepsize import paper_step
from tests.solver.problems import dense_objective, random_problem


@given(st.lists(st.integers(1, 200), min_size=1, max_size=6), st.integers(1, 80))
def test_blocks_are_even_and_never_cross_layers(layers: list[int], block_size: int) -> None:
    blocks = cut_blocks(layers, block_size)
    covered = [i for start, stop in blocks for i in range(start, stop)]
    assert covered == list(range(sum(layers)))
    start = 0
    for size in layers:
        inside = [b - a for a, b in blocks if start <= a < start + size]
        assert sum(inside) == size
        assert max(inside) <= block_size
        assert max(inside) - min(inside) <= 1
        assert len(inside) == -(-size // block_size)
        assert inside == sorted(inside, reverse=True)
        start += size


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 20)), min_size=1, max_size=4),
    st.integers(1, 40),
)
def test_blocks_cut_no_unit(layers: list[tuple[int, int]], block_size: int) -> None:
    """Even and of at most `block_size`, unless a single unit is larger."""
    sizes, units = [unit * count for unit, count in layers], [unit for unit, _ in layers]
    blocks = cut_blocks(sizes, block_size, units)
    assert [i for start, stop in blocks for i in range(start, stop)] == list(range(sum(sizes)))
    first = 0
    for size, unit in zip(sizes, units, strict=True):
        inside = [b - a for a, b in blocks if first <= a < first + size]
        assert sum(inside) == size
        assert all(part % unit == 0 for part in inside)
        assert max(inside) <= max(block_size, unit)
        assert max(inside) - min(inside) <= unit
        first += size


@pytest.mark.parametrize("method", ["bso", "cd", "iht"])
def test_one_block_is_the_plain_solver(method) -> None:  # type: ignore[no-untyped-def]
    problem = random_problem(0, n=20, p=50)
    A = problem.matrix.whole().t()
    # In batches there is no active set, and IHT is not cut into cycles.
    options = {"active": 0, "tol": 0.0} if method == "bso" else {}
    plain = solve(A, problem.w0, 12, lam=0.05, alpha=1.0, method=method, **options)
    block = solve(A, problem.w0, 12, lam=0.05, alpha=1.0, method=method, block_size=50, **options)
    assert torch.equal(plain.support, block.support)
    assert torch.allclose(plain.w, block.w, rtol=0, atol=1e-9)
    assert plain.objective == pytest.approx(block.objective, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_every_block_keeps_as_many_as_the_magnitude_solution(alpha: float) -> None:
    problem = random_problem(1, n=20, p=60)
    A, w0 = problem.matrix.whole().t(), problem.w0.clone()
    w0[20:30] *= 1e-3  # a block that keeps nothing
    layers, blocks = [20, 10, 30], [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50), (50, 60)]
    solution = solve(A, w0, 15, lam=0.05, alpha=alpha, layers=layers, block_size=10)
    magnitude = w0.abs().topk(15).indices
    for start, stop in blocks:
        kept = ((solution.support >= start) & (solution.support < stop)).sum()
        assert kept == ((magnitude >= start) & (magnitude < stop)).sum()
    assert len(solution.support) == 15


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0]), st.sampled_from([1, 5, 16]))
@settings(deadline=None)
def test_the_objective_is_global_and_below_the_magnitude_solution(
    seed: int, alpha: float, block_size: int
) -> None:
    problem = random_problem(seed, n=10, p=40, alpha=alpha)
    A = problem.matrix.whole().t()
    solution = solve(A, problem.w0, 12, lam=0.05, alpha=alpha, block_size=block_size)
    assert solution.objective == pytest.approx(dense_objective(problem, solution.w), rel=1e-10)
    assert solution.objective <= problem.start(12).objective * (1 + 1e-12)
    assert solution.history[0] >= solution.history[-1] == solution.objective
    assert int((solution.w != 0).sum()) <= 12


def test_blocks_that_overshoot_together_are_drawn_back() -> None:
    """Equal columns: each of forty blocks of one removes the same residual all by itself."""
    stored = torch.ones(40, 5, dtype=torch.float64)
    w0 = torch.full((40,), 1e-3, dtype=torch.float64)
    w0[:20] = 2e-3
    solution = solve(stored.t(), w0, 20, lam=1e-4, alpha=1.0, block_size=1)
    problem = random_problem(0, n=5, p=40, lam=1e-4)
    problem.matrix.whole().fill_(1.0)
    problem.w0.copy_(w0)
    assert solution.objective == pytest.approx(dense_objective(problem, solution.w), rel=1e-10)
    assert solution.objective < 0.1 * problem.start(20).objective


def iht_then_backsolve(options: Options, part: Problem, x: Iterate, trace: Trace):  # type: ignore[no-untyped-def]
    """Algorithm 5 without an active set on one block."""
    step = paper_step(options.gamma)
    x = iht(part, x, options.iterations, step=step, tol=options.tol, trace=trace)
    return refine_by_backsolve(part, x, options, trace), not trace.spent


@given(st.integers(0, 10**6), st.integers(0, 70), st.sampled_from([3, 10, 25]))
@settings(deadline=None, max_examples=50)
def test_in_batches_or_one_by_one_is_the_same(seed: int, k: int, block_size: int) -> None:
    """Layers of different scales, in batches of several that are padded."""
    problem = random_problem(seed, n=12, p=70)
    problem.w0[:20] *= 2
    problem.w0[50:] *= 0.3
    blocks, options = cut_blocks([20, 30, 13, 7], block_size), Options(iterations=5)
    single, batched = Trace(5), Trace(5)
    each = alone(partial(iht_then_backsolve, options))
    one, _ = solve_independent(problem, k, one_by_one(blocks), each, single)

    def bso(part: BatchedProblem, x: BatchedPoint, trace: Trace) -> BatchedSolution:
        return batched_bso(part, x, options, trace)

    two, _ = solve_independent(problem, k, block_batches(blocks, 60, 0.5), bso, batched)
    assert torch.equal(one.support, two.support)
    for first, second in ((one.w, two.w), (one.rho, two.rho)):
        torch.testing.assert_close(first, second, rtol=1e-8, atol=1e-8)
    assert one.objective == pytest.approx(two.objective, rel=1e-10)
    assert single.iterations == batched.iterations
    torch.testing.assert_close(single.history, batched.history)


class Counting(HeldMatrix):
    """A matrix that counts how often each column is read, and lets no other product be made."""

    def __init__(self, stored: Tensor) -> None:
        super().__init__(stored)
        self.reads = torch.zeros(len(stored), dtype=torch.int64)

    def read(self, start: int, stop: int) -> Tensor:
        self.reads[start:stop] += 1
        return super().read(start, stop)

    def _combine(self, index: Tensor, values: Tensor) -> Tensor:
        raise AssertionError("another pass over A")

    adjoint = columns = span = _all_columns = chunks = _combine  # type: ignore[assignment]


@pytest.mark.parametrize("method", ["bso", "cd", "iht"])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_every_column_is_read_once(
    method: str, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the blocks overshoot together, as small weights make them do."""
    monkeypatch.setattr(blocks_module, "CACHE", 20 * 10 * 8)  # batches of twenty columns
    truth = random_problem(0, n=10, p=64)
    w0 = truth.w0 * scale
    matrix = Counting(truth.matrix.whole())
    problem = Problem(matrix, w0, truth.mu, truth.offset)
    layout = Layout((40, 24), 8)
    solution = solve_problem(problem, 20, ALGORITHMS[method], options=Options(), layout=layout)
    assert matrix.reads.tolist() == [1] * 64
    dense = Problem(truth.matrix, w0, truth.mu, truth.offset)
    assert solution.objective == pytest.approx(dense_objective(dense, solution.w), rel=1e-10)
    assert solution.history[0] == pytest.approx(dense.start(20).objective, rel=1e-10)


def test_the_size_of_a_batch_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(3, n=12, p=90)
    A = problem.matrix.whole().t()
    found = []
    for room in (1, 30 * 12 * 8, 10**9):
        monkeypatch.setattr(blocks_module, "CACHE", room)
        found.append(solve(A, problem.w0, 30, lam=0.05, alpha=1.0, block_size=10))
    for other in found[1:]:
        torch.testing.assert_close(found[0].w, other.w, rtol=1e-10, atol=1e-10)


def test_options_that_are_not_batched_are_solved_one_by_one() -> None:
    problem = random_problem(4, n=12, p=60)
    A = problem.matrix.whole().t()
    plain = solve(A, problem.w0, 15, lam=0.05, alpha=1.0, block_size=20)
    for options in ({"step": "backtracking"}, {"step": "lipschitz"}, {"continuation": 5}):
        solution = solve(A, problem.w0, 15, lam=0.05, alpha=1.0, block_size=20, **options)
        assert solution.objective < solution.history[0]
        assert not torch.equal(solution.w, plain.w)


def test_jitter_is_reported_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """No ridge, and a column of zeros in each of ten blocks."""
    problem = random_problem(5, n=30, p=100)
    stored, w0 = problem.matrix.whole(), problem.w0.clone()
    stored[::10] = 0.0
    w0[::10] = 9.0
    with caplog.at_level(logging.WARNING):
        solution = solve(stored.t(), w0, 40, lam=0.0, alpha=1.0, block_size=10)
    assert solution.jitter > 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "singular" in caplog.text
    assert bool(solution.w.isfinite().all())
