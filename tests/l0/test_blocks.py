import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.l0 import solve
from chita.l0.blocks import cut_blocks
from tests.l0.problems import dense_objective, random_problem


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
        start += size


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
