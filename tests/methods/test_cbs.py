"""CBS as a method: a support by swaps, and the exact update without the first-order term."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import chita
from chita.methods.cbs import CBS
from chita.solver.algorithm import Layout
from chita.solver.solve import solve_problem
from tests.solver.problems import dense_minimiser, random_problem
from tests.support.pruning import cut, points, tiny


@given(st.integers(0, 10**6), st.integers(0, 20), st.sampled_from([1e-3, 0.05, 1.0]))
@settings(deadline=None, max_examples=40)
def test_the_update_is_the_constrained_minimiser(seed: int, k: int, lam: float) -> None:
    problem = random_problem(seed, p=20, lam=lam, alpha=1.0)
    solution = solve_problem(problem, k, CBS.algorithm, options=CBS.options)
    still = replace(problem, offset=torch.zeros(10, dtype=torch.float64))
    expected = dense_minimiser(still, solution.support)
    torch.testing.assert_close(solution.w, expected, rtol=1e-8, atol=1e-8)
    assert len(solution.support) == k


def test_in_blocks_each_keeps_its_budget() -> None:
    problem = random_problem(3, p=40, alpha=0.0)
    x, layout = problem.start(12), Layout((25, 15), block_size=10)
    options = replace(CBS.options, iterations=50)
    solution = solve_problem(problem, 12, CBS.algorithm, options=options, layout=layout)
    assert layout.blocks is not None
    for start, stop in layout.blocks:
        inside = [((s >= start) & (s < stop)).sum() for s in (x.support, solution.support)]
        assert inside[0] == inside[1]
    assert not torch.equal(solution.support, x.support)


def test_the_best_support_of_a_block_is_found() -> None:
    problem = random_problem(3, p=8, alpha=0.0)
    solution = solve_problem(problem, 4, CBS.algorithm, options=CBS.options)
    best = min(
        combinations(range(8), 4), key=lambda kept: problem.unmoved(torch.tensor(kept)).objective
    )
    assert tuple(solution.support.tolist()) == best


@pytest.mark.parametrize("ridge", ["auto", 1e-3])
@pytest.mark.parametrize("block_size", [None, 20])
@pytest.mark.parametrize("stages", [1, 3])
def test_prunes_a_network(ridge: str | float, block_size: int | None, stages: int) -> None:
    model = tiny()
    result = chita.prune(
        model,
        cut(points(120), 10),
        sparsity=0.75,
        method="cbs",
        samples=40,
        batch=2,
        ridge=ridge,  # type: ignore[arg-type]
        block_size=block_size,
        stages=stages,
        progress=False,
    )
    assert result.nonzeros == 18 and len(result.stages) == stages
    assert result.stages[-1].objective is not None and result.stages[-1].ridge is not None


def test_one_seed_one_result() -> None:
    def pruned(seed: int) -> torch.Tensor:
        # One batch, so that the seed has no say in the order of the data.
        model = tiny()
        keywords = {"sparsity": 0.5, "method": "cbs", "ridge": 1e-5, "batch": 2, "iterations": 0}
        result = chita.prune(
            model, [points(120)], seed=seed, progress=False, **{"recover": False, **keywords}
        )
        return torch.cat([mask.flatten() for mask in result.masks.values()])

    results = [pruned(seed) for seed in (0, 0, 1, 2, 3)]
    assert torch.equal(results[0], results[1])
    assert any(not torch.equal(results[0], other) for other in results[2:])
