"""OBS: greedy, exact, and the same whatever a round may look at."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita import ChitaError
from chita.methods import obs as module
from chita.methods.obs import OneByOne, one_by_one_memory, remove_one_by_one
from chita.solver.algorithm import Layout
from chita.solver.options import Options
from chita.solver.solve import solve_problem
from tests.methods.dense import dense_one_by_one
from tests.solver.problems import dense_minimiser, dense_objective, random_problem
from tests.support.messages import naming


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 30),
    k=st.integers(0, 25),
    lam=st.sampled_from([1e-3, 0.05, 1.0]),
)
def test_many_removals_equal_a_dense_greedy_loop(seed: int, n: int, k: int, lam: float) -> None:
    problem = random_problem(seed, n=n, p=25, lam=lam)
    problem.matrix.whole()[[seed % 25, 7]] = 0.0
    w, support = dense_one_by_one(problem, k)
    point = remove_one_by_one(problem, k)
    assert torch.equal(point.support, support)
    torch.testing.assert_close(point.w, w, rtol=1e-8, atol=1e-8)
    assert point.objective == pytest.approx(dense_objective(problem, w), rel=1e-8)


@pytest.mark.parametrize(("round_size", "candidates"), [(1, 1), (4, 5), (8, 8), (16, 60)])
def test_rounds_and_candidates_change_nothing(
    monkeypatch: pytest.MonkeyPatch, round_size: int, candidates: int
) -> None:
    """With few candidates, weights outside become cheaper, and removals are taken back."""
    monkeypatch.setattr(module, "ROUND", round_size)
    monkeypatch.setattr(module, "CANDIDATES", candidates)
    for seed in range(5):
        problem = random_problem(seed, n=20, p=60, lam=1e-3)
        w, support = dense_one_by_one(problem, 15)
        point = remove_one_by_one(problem, 15)
        assert torch.equal(point.support, support)
        torch.testing.assert_close(point.w, w, rtol=1e-8, atol=1e-8)


def test_removals_that_were_undercut_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANDIDATES", 8)
    made: list[int] = []
    remove = module._Round.remove

    def counted(self: module._Round, count: int) -> torch.Tensor:
        places = remove(self, count)
        made.append(len(places))
        return places

    monkeypatch.setattr(module._Round, "remove", counted)
    remove_one_by_one(random_problem(0, n=20, p=60, lam=1e-3), 15)
    assert sum(made) == 45
    assert 1 <= min(made[:-1]) < 8


@pytest.mark.parametrize("seed", range(5))
def test_removing_one_weight_is_the_best_there_is(seed: int) -> None:
    problem = random_problem(seed, alpha=0.0)
    every = torch.arange(16)
    best = min(
        dense_objective(problem, dense_minimiser(problem, every[every != q])) for q in range(16)
    )
    assert remove_one_by_one(problem, 15).objective == pytest.approx(best, rel=1e-8)


def test_float32_gradients_lose_little() -> None:
    problem = random_problem(0, n=30, p=200, lam=1e-4, alpha=0.0, dtype=torch.float32)
    w, support = dense_one_by_one(problem, 60)
    point = remove_one_by_one(problem, 60)
    assert torch.equal(point.support, support)
    torch.testing.assert_close(point.w.double(), w, rtol=1e-3, atol=1e-4)


def test_each_block_keeps_its_share_of_the_largest_weights() -> None:
    problem, layout = random_problem(1, n=12, p=30, alpha=0.0), Layout((18, 12), 9)
    kept = problem.start(12).support
    solution = solve_problem(problem, 12, OneByOne(), options=Options(), layout=layout)
    for start, stop in layout.blocks or []:
        inside = [((s >= start) & (s < stop)).sum() for s in (kept, solution.support)]
        assert inside[0] == inside[1]


def test_it_needs_a_ridge() -> None:
    with pytest.raises(ChitaError, match=naming("ridge", 0)):
        solve_problem(random_problem(0, lam=0.0), 4, OneByOne(), options=Options())


def test_a_system_that_overflows_is_not_passed_over_in_silence() -> None:
    problem = random_problem(0)
    problem.matrix.whole().mul_(1e200)
    assert not math.isfinite(remove_one_by_one(problem, 4).objective)


def test_memory_counts_the_systems_and_a_copy_of_the_columns() -> None:
    assert one_by_one_memory(Layout((400, 100)), 10) == 8 * (3 * 100 + 2 * 500**2) + 4 * 10 * 500
    assert one_by_one_memory(Layout((400, 100), 50), 10) == 8 * (300 + 2 * 50**2) + 4 * 10 * 50
