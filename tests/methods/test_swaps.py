"""CBS-S against the dense formula and against brute force over all supports."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita.methods import cbs as swaps
from chita.methods.cbs import Toggles, disjoint_swaps, perturbed, swap_round, swap_support
from chita.methods.surgeon_inverse import square_norms
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem
from tests.solver.problems import dense_objective, random_problem


def f(problem: Problem, support: Tensor) -> float:
    """The objective of pruning all but the support without moving it, from its definition."""
    w = torch.zeros_like(problem.w0)
    w[support] = problem.w0[support]
    return dense_objective(problem, w)


def search(problem: Problem, k: int, *, seed: int = 0) -> tuple[Iterate, bool, Trace]:
    trace = Trace(100)
    x, settled = swap_support(problem, problem.start(k), Options(seed=seed), trace)
    return x, settled, trace


def norms(problem: Problem) -> Tensor:
    return square_norms(problem.matrix.whole())


@given(st.integers(0, 10**6), st.integers(0, 14), st.sampled_from([0.0, 1.0]))
@settings(deadline=None, max_examples=50)
def test_toggling_changes_f_by_what_the_bookkeeping_says(seed: int, k: int, alpha: float) -> None:
    problem = random_problem(seed, p=14, alpha=alpha)
    x = problem.unmoved(
        torch.randperm(14, generator=torch.Generator().manual_seed(seed))[:k].sort().values
    )
    toggles = Toggles.at(problem, x, norms(problem))
    kept = set(x.support.tolist())
    assert toggles.kept.nonzero().flatten().tolist() == sorted(kept)
    for i in range(14):
        toggled = torch.tensor(sorted(kept ^ {i}), dtype=torch.int64)
        change = f(problem, toggled) - f(problem, x.support)
        assert float(toggles.change[i]) == pytest.approx(change, rel=1e-8, abs=1e-8)


@given(st.integers(0, 10**6), st.integers(1, 29), st.sampled_from([1e-4, 0.05, 10.0]))
@settings(deadline=None, max_examples=50)
def test_a_round_lowers_f_and_keeps_the_books(seed: int, k: int, lam: float) -> None:
    problem = random_problem(seed, p=30, lam=lam, alpha=0.0)
    x = problem.start(k)
    after = swap_round(problem, x, norms(problem))
    assert len(after.support) == k
    assert after is x or f(problem, after.support) < f(problem, x.support)
    assert after.objective == pytest.approx(f(problem, after.support), rel=1e-8, abs=1e-10)
    fresh = problem.unmoved(after.support)
    torch.testing.assert_close(after.rho, fresh.rho, rtol=1e-9, atol=1e-9)
    assert torch.equal(after.w, fresh.w)
    assert torch.equal(after.support, after.support.sort().values)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5))
@settings(deadline=None, max_examples=50)
def test_every_single_swap_lowers_f_the_most(seed: int, kept: int, pruned: int) -> None:
    problem = random_problem(seed, p=kept + pruned, alpha=0.0)
    x = problem.unmoved(torch.arange(kept))
    toggles = Toggles.at(problem, x, norms(problem))
    columns = problem.matrix.whole()
    cross = torch.outer(toggles.step, toggles.step) * (columns @ columns.t())
    support, free = set(range(kept)), set(range(kept + pruned))
    for i, j in disjoint_swaps(toggles.change, cross, kept):
        before = f(problem, torch.tensor(sorted(support)))
        possible = {
            (a, b): f(problem, torch.tensor(sorted(support - {a} | {b})))
            for a in range(kept)
            for b in range(kept, kept + pruned)
            if a in free and b in free
        }
        assert possible[i, j] == pytest.approx(min(possible.values()), rel=1e-9)
        assert possible[i, j] < before
        support, free = support - {i} | {j}, free - {i, j}


@pytest.mark.parametrize("k", [3, 15, 27])
def test_no_swap_helps_where_the_search_settles(k: int) -> None:
    for seed in range(10):
        problem = random_problem(seed, p=30, alpha=0.0)
        x, settled, trace = search(problem, k)
        assert settled
        assert all(later < earlier for earlier, later in pairwise(trace.history))
        kept = set(x.support.tolist())
        for i in kept:
            for j in set(range(30)) - kept:
                swapped = torch.tensor(sorted(kept - {i} | {j}))
                assert f(problem, swapped) >= x.objective * (1 - 1e-9)


def test_optimal_in_most_problems_and_never_worse_than_magnitude() -> None:
    optimal = 0
    for seed in range(50):
        problem = random_problem(seed, p=10, alpha=0.0)
        k = 2 + seed % 7
        x, _, _ = search(problem, k, seed=seed)
        best = min(f(problem, torch.tensor(kept)) for kept in combinations(range(10), k))
        assert best * (1 - 1e-9) <= x.objective <= problem.start(k).objective * (1 + 1e-12)
        optimal += x.objective <= best * (1 + 1e-9)
    assert optimal >= 35


@pytest.mark.parametrize("candidates", [1, 3])
def test_few_candidates_a_round_do_too(monkeypatch: pytest.MonkeyPatch, candidates: int) -> None:
    monkeypatch.setattr(swaps, "CANDIDATES", candidates)
    problem = random_problem(1, p=60, alpha=0.0)
    x, _, trace = search(problem, 20)
    assert x.objective < 0.5 * problem.start(20).objective
    assert x.objective == pytest.approx(f(problem, x.support), rel=1e-9)
    assert trace.iterations > 3


def test_fewer_swaps_where_rounding_spoils_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(2, p=30, alpha=0.0)
    x = problem.start(10)
    good = swap_round(problem, x, norms(problem)).objective

    def with_bad_ones(change: Tensor, cross: Tensor, kept: int) -> list[tuple[int, int]]:
        chosen = disjoint_swaps(change, cross, kept)[:1]
        worst = int((change[:kept, None] + change[kept:] + cross[:kept, kept:]).argmax())
        i, j = divmod(worst, len(change) - kept)
        return [*chosen, (i, kept + j)]

    monkeypatch.setattr(swaps, "disjoint_swaps", with_bad_ones)
    fewer = swap_round(problem, x, norms(problem))
    assert good < fewer.objective < x.objective
    assert len(set(fewer.support.tolist()) - set(x.support.tolist())) == 1


def test_seeds_are_drawn_from_the_option_alone() -> None:
    problem = random_problem(3, p=400, alpha=0.0)
    x = problem.start(100)
    before = torch.get_rng_state()
    one, again, other = (
        torch.stack([point.support for point in perturbed(problem, x, seed)]) for seed in (5, 5, 6)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert len({tuple(support.tolist()) for support in one}) == swaps.SEEDS
    magnitude = set(x.support.tolist())
    for support in one:  # small perturbations: most of the largest weights are in
        assert 80 < len(magnitude & set(support.tolist())) < 100


@pytest.mark.parametrize("k", [0, 16])
def test_nothing_to_swap(k: int) -> None:
    problem = random_problem(4, alpha=0.0)
    x, settled, trace = search(problem, k)
    assert settled and trace.iterations == 1
    assert torch.equal(x.support, problem.start(k).support)


def test_rounds_are_bounded_by_the_iterations() -> None:
    problem = random_problem(5, p=200, n=20, alpha=0.0)
    trace = Trace(1)
    _, settled = swap_support(problem, problem.start(100), Options(), trace)
    assert not settled and trace.iterations == 1


def test_from_a_point_that_has_moved() -> None:
    problem = random_problem(6, alpha=0.0)
    x = problem.start(6)
    moved = problem.at(2 * x.w, x.support)
    (one, _), (other, _) = (
        swap_support(problem, point, Options(), Trace(100)) for point in (x, moved)
    )
    assert torch.equal(one.w, other.w)
