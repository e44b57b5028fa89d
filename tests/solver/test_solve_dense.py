"""chita.solve against dense algebra and against brute force over all supports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chita.solver import solve
from tests.solver.dense_reference import Dense, apart, coupled_sweep

METHODS = ["bso", "cd", "iht"]
SHAPES = [(8, 10, 4), (4, 10, 7)]  # n, p, k: k <= n and k > n
THOROUGH: dict[str, Any] = {"iterations": 2000, "t_cd": 200, "tol": 1e-13}


def drawn(
    seed: int, n: int, p: int, *, lam: float, degenerate: bool = False, alpha: float = 1.0
) -> Dense:
    """A random problem; a degenerate one has zero and duplicate columns with large weights."""
    generator = np.random.default_rng(seed)
    A, w0 = generator.standard_normal((n, p)), generator.standard_normal(p)
    if degenerate:
        A[:, 1] = 0.0
        A[:, 3] = A[:, 4] = A[:, 2]
        w0[1:5] *= 3
    return Dense(A, w0, lam, alpha)


def solved(dense: Dense, k: int, **options: Any) -> Any:
    return solve(dense.A, dense.w0, k, lam=dense.lam, alpha=dense.alpha, **options)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("block_size", [None, 5])
@pytest.mark.parametrize(("n", "p", "k"), SHAPES)
@pytest.mark.parametrize("lam", [0.3, 0.0])
@pytest.mark.parametrize("degenerate", [False, True])
def test_the_objective_is_that_of_the_definition_and_within_its_bounds(
    method: Any, block_size: int | None, n: int, p: int, k: int, lam: float, degenerate: bool
) -> None:
    for seed in range(2):
        dense = drawn(seed, n, p, lam=lam, degenerate=degenerate)
        solution = solved(dense, k, method=method, block_size=block_size)
        assert solution.objective == pytest.approx(dense.objective(solution.w), rel=1e-9, abs=1e-12)
        assert np.count_nonzero(solution.w) <= k
        assert not np.delete(solution.w, solution.support).any()
        start = dense.objective(dense.on(dense.w0, dense.largest(k)))
        assert dense.brute_force(k) - 1e-9 <= solution.objective <= start * (1 + 1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "p", "k"), SHAPES)
@pytest.mark.parametrize("alpha", [1.0, -0.7, 0.0])
def test_the_weights_are_the_ridge_solution_on_their_support(
    method: Any, n: int, p: int, k: int, alpha: float
) -> None:
    for seed in range(2):
        dense = drawn(seed, n, p, lam=0.3, alpha=alpha)
        solution = solved(dense, k, method=method, **THOROUGH)
        truth = dense.minimiser(solution.support)
        # Coordinate descent and IHT stop when the objective settles: half of the digits of w.
        tolerance = 1e-9 if method == "bso" else 1e-4
        np.testing.assert_allclose(solution.w, truth, rtol=0, atol=tolerance)


@pytest.mark.parametrize("method", ["bso", "cd"])
@pytest.mark.parametrize(("n", "p", "k"), SHAPES)
def test_without_ridge_the_support_is_solved_whatever_its_columns(
    method: Any, n: int, p: int, k: int
) -> None:
    for seed in range(2):
        dense = drawn(seed, n, p, lam=0.0, degenerate=True)
        solution = solved(dense, k, method=method, iterations=40, t_cd=100, tol=1e-9)
        truth = dense.objective(dense.minimiser(solution.support))
        start = dense.objective(dense.on(dense.w0, dense.largest(k)))
        assert solution.objective == pytest.approx(truth, rel=1e-3, abs=1e-6 * start)


BLOCKS = [np.arange(start, start + 4) for start in range(0, 32, 4)]


@pytest.mark.parametrize("scale", [1.0, 0.05])  # small weights: blocks apart overshoot together
@pytest.mark.parametrize("n", [3, 20])
def test_blocks_apart_are_solved_apart(scale: float, n: int) -> None:
    for seed in range(3):
        dense = drawn(seed, n, 32, lam=0.1)
        dense.w0[:] *= scale
        for iterations in (0, 20):
            solution = solved(dense, 18, block_size=4, iterations=iterations)
            truth = apart(dense, solution.support, BLOCKS)
            np.testing.assert_allclose(solution.w, truth, rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 0.05])
@pytest.mark.parametrize("sweeps", [1, 3])
def test_coupled_blocks_go_together_as_far_as_is_best(scale: float, sweeps: int) -> None:
    """Batches of two blocks, a quarter of the columns; the supports stay without iterations."""
    batches = [BLOCKS[i : i + 2] for i in range(0, 8, 2)]
    for seed in range(3):
        dense = drawn(seed, 20, 32, lam=0.1)
        dense.w0[:] *= scale
        support = dense.largest(18)
        options = {"iterations": 0, "block_sweeps": sweeps, "tol": 0.0}
        solution = solved(dense, 18, block_size=4, **options)
        truth = apart(dense, support, BLOCKS)
        for _ in range(sweeps):
            truth = coupled_sweep(dense, truth, support, batches)
        np.testing.assert_allclose(solution.w, truth, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_coupled_blocks_lower_the_global_objective_under_any_method(method: Any) -> None:
    for seed in range(2):
        dense = drawn(seed, 20, 32, lam=0.1)
        one = solved(dense, 18, block_size=4, method=method)
        more = solved(dense, 18, block_size=4, method=method, block_sweeps=5)
        assert more.objective == pytest.approx(dense.objective(more.w), rel=1e-9)
        assert more.objective < one.objective


@pytest.mark.parametrize("block_size", [None, 150])
@pytest.mark.parametrize("lam", [1e-7, 1e-9, 0.0])
def test_a_float32_gram_is_not_trusted_where_its_rounding_exceeds_the_ridge(
    block_size: int | None, lam: float
) -> None:
    """Rows that differ by a thousandth: their Gram differs by as much as float32 rounds it."""
    generator = np.random.default_rng(0)
    n, p, k = 20, 150, 100
    common, apart = generator.standard_normal(p), generator.standard_normal((n, p))
    A = (common + 1e-3 * apart).astype(np.float32)
    w0 = generator.standard_normal(p).astype(np.float32)
    dense = Dense(A.astype(np.float64), w0.astype(np.float64), lam, 1.0)
    solution = solve(A, w0, k, lam=lam, alpha=1.0, block_size=block_size)
    best = dense.objective(dense.minimiser(solution.support))
    reached = dense.objective(solution.w.astype(np.float64))
    # float32 weights move the residual by |A| eps |w|, whatever system they solve.
    spacing = np.finfo(np.float32).eps * np.linalg.norm(solution.w)
    assert reached <= 1.05 * best + (np.linalg.norm(dense.A, 2) * spacing) ** 2
