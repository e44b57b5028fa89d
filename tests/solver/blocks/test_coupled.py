"""Coupled blocks against the definition of Q, blocks apart, and the minimiser over all blocks."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita.solver import solve
from chita.solver.algorithm import Layout
from chita.solver.blocks import independent as blocks_module
from chita.solver.blocks.block_batch import BlockBatch, block_batches
from chita.solver.blocks.coupled import Rules, joint_steps, solve_coupled
from chita.solver.blocks.independent import alone, cut_blocks, one_by_one
from chita.solver.iht_active_set import iht, refine_by_backsolve
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem
from chita.solver.ranks import ALONE, Ranks, joined_ranks
from chita.solver.solve import ALGORITHMS, batched_bso, solve_problem
from chita.solver.stepsize import paper_step
from tests.solver.problems import dense_minimiser, dense_objective, random_problem
from tests.support.gloo import on_ranks

LAYERS, BLOCK = [40, 27, 33], 10


def scaled(seed: int, scale: float, **sizes: Any) -> Problem:
    """Small weights make the first-order term strong: blocks apart then overshoot."""
    problem = random_problem(seed, **sizes)
    problem.w0.mul_(scale)
    return problem


def solved(problem: Problem, k: int, **options: Any) -> Any:
    layout = Layout(tuple(LAYERS), BLOCK)
    method = options.pop("method", "bso")
    return solve_problem(problem, k, ALGORITHMS[method], options=Options(**options), layout=layout)


@pytest.mark.slow
@given(
    st.integers(0, 10**6),
    st.sampled_from([1.0, 1e-3]),
    st.integers(0, 100),
    st.sampled_from(["bso", "cd", "iht"]),
)
@example(seed=0, scale=1.0, k=1, method="bso")  # a block moves by rounding errors alone
@settings(deadline=None, max_examples=15)
def test_the_global_objective_never_rises(seed: int, scale: float, k: int, method: str) -> None:
    problem = scaled(seed, scale, n=15, p=100)
    coupled = solved(problem, k, block_sweeps=4, iterations=5, method=method)
    history = coupled.history
    assert history[0] == pytest.approx(problem.start(k).objective, rel=1e-10)
    assert all(later <= earlier for earlier, later in pairwise(history))
    assert coupled.objective == pytest.approx(dense_objective(problem, coupled.w), rel=1e-8)
    magnitude = problem.start(k).support
    for start, stop in cut_blocks(LAYERS, BLOCK):
        kept = ((coupled.support >= start) & (coupled.support < stop)).sum()
        assert kept == ((magnitude >= start) & (magnitude < stop)).sum()
    assert set(coupled.w.nonzero()[:, 0].tolist()) <= set(coupled.support.tolist())


@given(st.integers(0, 10**6), st.sampled_from([1.0, 1e-2, 1e-3]), st.sampled_from([10, 30, 60]))
@settings(deadline=None, max_examples=15)
def test_coupled_is_better_than_apart(seed: int, scale: float, k: int) -> None:
    problem = scaled(seed, scale, n=20, p=100)
    apart = solved(problem, k, iterations=5)
    coupled = solved(problem, k, iterations=5, block_sweeps=1)
    assert coupled.objective < apart.objective
    assert coupled.history[1] == pytest.approx(apart.objective, rel=1e-10)


@pytest.mark.parametrize("k", [12, 70])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_many_sweeps_end_at_the_minimiser_over_all_blocks(k: int, scale: float) -> None:
    problem = scaled(0, scale, n=15, p=100, lam=0.5)
    coupled = solved(problem, k, iterations=0, block_sweeps=3000, tol=0.0)
    support = problem.start(k).support
    assert torch.equal(coupled.support, support)
    truth = dense_objective(problem, dense_minimiser(problem, support))
    assert coupled.objective == pytest.approx(truth, rel=1e-7)
    assert solved(problem, k, iterations=0).objective > 1.05 * truth  # not where apart ends


@given(st.integers(0, 10**6), st.integers(1, 12), st.sampled_from([0.0, 0.3]))
@settings(deadline=None, max_examples=40)
def test_joint_steps_are_the_best_of_all(seed: int, b: int, mu: float) -> None:
    """Against least squares; fewer blocks than samples and more, one of which does not move."""
    draw = torch.Generator().manual_seed(seed)
    n, size = 8, 5
    mu = mu if b < n else 0.3
    A, e, d = (
        torch.randn(b, *shape, generator=draw, dtype=torch.float64)
        for shape in ((size, n), (size,), (size,))
    )
    rho = torch.randn(n, generator=draw, dtype=torch.float64)
    e[0] = 0.0
    image = torch.einsum("bi,bin->bn", e, A)
    problem = Problem(HeldMatrix(torch.zeros(0, n, dtype=torch.float64)), rho, mu, rho)
    t = joint_steps(problem, rho, d, e, image, Trace(1))
    spread = torch.block_diag(*e).view(b, -1).t()  # e_B at its block's weights, (b B, b)
    rows = torch.cat([image.t(), mu**0.5 * spread])
    right = -torch.cat([rho, mu**0.5 * d.flatten()])
    truth = torch.linalg.lstsq(rows, right, driver="gelsd").solution
    assert t[0] == 0.0
    torch.testing.assert_close(t, truth, rtol=1e-6, atol=1e-8)


class Counting(HeldMatrix):
    """A matrix that counts how often each column is read, in order, and is asked no more."""

    def __init__(self, stored: Tensor) -> None:
        super().__init__(stored)
        self.reads = torch.zeros(len(stored), dtype=torch.int64)

    def read(self, start: int, stop: int) -> Tensor:
        assert start == 0 or int(self.reads[start - 1]) == int(self.reads[start]) + 1
        self.reads[start:stop] += 1
        return super().read(start, stop)

    def forward(self, d: Tensor) -> Tensor:
        raise AssertionError("another pass over A")

    adjoint = columns = gram = chunks = forward  # type: ignore[assignment]


@pytest.mark.parametrize("method", ["bso", "cd"])
def test_a_sweep_is_one_pass_after_that_of_blocks_apart(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "CACHE", 20 * 15 * 8)  # batches of twenty columns
    truth = random_problem(0, n=15, p=100)
    matrix = Counting(truth.matrix.whole())
    problem = Problem(matrix, truth.w0, truth.mu, truth.offset)
    solution = solved(problem, 30, block_sweeps=3, tol=0.0, method=method)
    assert matrix.reads.tolist() == [4] * 100
    assert len(solution.history) == 6
    assert solution.objective == pytest.approx(dense_objective(truth, solution.w), rel=1e-10)


def rules(options: Options) -> Rules:
    def under(chosen: Options) -> Any:
        return lambda part, x, trace: batched_bso(part, x, chosen, trace)

    return under(options), under(Options(iterations=0))


def iht_then_backsolve(options: Options, part: Problem, x: Iterate, trace: Trace) -> Any:
    step = paper_step(options.gamma)
    x = iht(part, x, options.iterations, step=step, tol=options.tol, trace=trace)
    return refine_by_backsolve(part, x, options, trace), not trace.spent


def test_one_by_one_the_batched_path_is_the_plain_one() -> None:
    options = Options(iterations=5, block_sweeps=3)
    for seed in range(5):
        problem = random_problem(seed, n=12, p=70)
        batches, x = one_by_one(cut_blocks([20, 30, 13, 7], 10)), problem.start(25)
        each = alone(partial(iht_then_backsolve, options))
        one, _ = solve_coupled(problem, x, batches, (each, each), options, Trace(5))
        two, _ = solve_coupled(problem, x, batches, rules(options), options, Trace(5))
        assert torch.equal(one.support, two.support)
        torch.testing.assert_close(one.w, two.w, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(one.rho, two.rho, rtol=1e-8, atol=1e-8)


def test_blocks_that_agree_too_well_do_not_overshoot() -> None:
    """Equal columns: each of twenty blocks of one removes the same residual all by itself."""
    A, w0 = torch.ones(5, 40, dtype=torch.float64), torch.full((40,), 1e-3, dtype=torch.float64)
    w0[:20] = 2e-3
    coupled = solve(A, w0, 20, lam=1e-4, alpha=1.0, block_size=1, block_sweeps=1)
    assert coupled.objective < 1e-4 * coupled.history[0]
    singular = solve(A, w0, 20, lam=0.0, alpha=1.0, block_size=1, block_sweeps=1)
    assert singular.objective < 1e-8
    assert bool(singular.w.isfinite().all())


def test_float32_stays_true_to_its_objective() -> None:
    problem = random_problem(0, n=15, p=100, dtype=torch.float32)
    coupled = solved(problem, 40, block_sweeps=10, tol=0.0, iterations=5)
    assert coupled.w.dtype == torch.float32
    assert coupled.objective == pytest.approx(dense_objective(problem, coupled.w), rel=1e-5)


# Ranks: the columns that each has, and the blocks it reads together.
SHARES = [(0, 40), (40, 70), (70, 100)]


def on_columns(ranks: Ranks, start: int, stop: int, columns: int) -> Any:
    truth = random_problem(7, n=15, p=100)
    matrix = HeldMatrix(truth.matrix.whole()[start:stop].clone(), ranks)
    problem = Problem(matrix, truth.w0[start:stop].clone(), truth.mu, truth.offset)
    blocks = cut_blocks([stop - start], BLOCK) if stop > start else []
    batches = list(block_batches(blocks, columns))
    options, trace = Options(iterations=5, block_sweeps=4, tol=0.0), Trace(5)
    x, _ = solve_coupled(problem, problem.start(35), batches, rules(options), options, trace)
    whole = ranks.gather(x.w)
    return whole, ranks.gather(x.support + start), x.rho, x.objective, trace.history


def on_rank(rank: int) -> Any:
    with joined_ranks() as ranks:
        together = on_columns(ranks, *SHARES[rank], columns=100)
        apart = on_columns(ranks, *SHARES[rank], columns=BLOCK)  # 4, 3 and 3 turns
        none = on_columns(ranks, *[(0, 100), (100, 100), (100, 100)][rank], columns=20)
        return together, apart, none


@pytest.mark.slow
def test_ranks_take_their_turns_as_one() -> None:
    alone_together = on_columns(ALONE, 0, 100, columns=100)
    alone_in_turns = on_columns(ALONE, 0, 100, columns=20)
    truth = random_problem(7, n=15, p=100)
    outcomes = on_ranks(3, on_rank)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
        together, apart, none = outcome
        # What ranks do at once is what one process does with all their blocks in a batch.
        for found, expected in ((together, alone_together), (none, alone_in_turns)):
            assert torch.equal(found[1], expected[1])
            torch.testing.assert_close(found[0], expected[0], rtol=1e-7, atol=1e-9)
            torch.testing.assert_close(found[4], expected[4], rtol=1e-9, atol=0.0)
        w, support, _, objective, history = apart
        assert objective == pytest.approx(dense_objective(truth, w), rel=1e-10)
        assert history == sorted(history, reverse=True)
        assert len(support) == 35
        for mine, first in zip(apart, outcomes[0][1], strict=True):
            assert torch.equal(mine, first) if isinstance(mine, Tensor) else mine == first


def test_a_batch_of_no_blocks_is_one_too() -> None:
    empty, entries = BlockBatch(()), torch.arange(12.0).view(6, 2)
    assert empty.stack(entries).shape == (0, 0, 2)
    assert empty.unstack(empty.stack(entries[:, 0])).shape == (0,)
