"""The solution does not depend on the units of A, however small or large they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.solver import Solution, solve
from tests.solver.dense_reference import Dense
from tests.support.messages import naming

METHODS = ["bso", "cd", "iht"]
LAM, ALPHA = 0.02, 0.7


def drawn(seed: int, n: int, p: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(n, p, generator=generator, dtype=torch.float64)
    return A.to(dtype), torch.randn(p, generator=generator, dtype=torch.float64).to(dtype)


def in_units(A: torch.Tensor, w0: torch.Tensor, s: float, **options: Any) -> Solution:
    """The solution of the problem with s A, s alpha and s^2 lam."""
    return solve(s * A, w0, 12, lam=s * s * LAM, alpha=s * ALPHA, **options)


# Exponents of two, within which A is ordinary, and beyond which it is not.
ORDINARY = st.integers(-20, 20)
EXTREME = {
    torch.float64: st.integers(-400, -36) | st.integers(36, 400),
    torch.float32: st.integers(-95, -36) | st.integers(36, 95),
}


@given(
    st.data(),
    st.integers(0, 10**6),
    st.sampled_from([torch.float64, torch.float32]),
    st.sampled_from(METHODS),
    st.sampled_from([{}, {"block_size": 10}, {"block_size": 10, "block_sweeps": 2}]),
    st.sampled_from([8, 20]),
)
@settings(deadline=None, max_examples=15)
def test_powers_of_two_do_not_change_a_bit(
    data: Any, seed: int, dtype: torch.dtype, method: Any, blocks: Any, n: int
) -> None:
    """Extreme matrices are read in another order than ordinary ones, and compared by themselves."""
    A, w0 = drawn(seed, n, 40, dtype)
    exponents = data.draw(st.sampled_from([ORDINARY, EXTREME[dtype]]))
    one, other = 2.0 ** data.draw(exponents), 2.0 ** data.draw(exponents)
    options = {"method": method, "iterations": 8, **blocks}
    first, second = in_units(A, w0, one, **options), in_units(A, w0, other, **options)
    assert torch.equal(first.support, second.support)
    assert torch.equal(first.w, second.w)
    assert first.iterations == second.iterations
    assert [v / one / one for v in first.history] == [v / other / other for v in second.history]


@given(st.integers(0, 10**6), st.floats(-15, 15), st.sampled_from(METHODS))
@settings(deadline=None, max_examples=15)
def test_other_factors_change_no_more_than_rounding(seed: int, power: float, method: Any) -> None:
    A, w0 = drawn(seed, 20, 40, torch.float64)
    s = 10.0**power
    plain, scaled = (in_units(A, w0, f, method=method, iterations=8) for f in (1.0, s))
    assert torch.equal(scaled.support, plain.support)
    torch.testing.assert_close(scaled.w, plain.w, rtol=1e-9, atol=1e-9)
    assert scaled.objective / s**2 == pytest.approx(plain.objective, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [3, 8])
@pytest.mark.parametrize("block_size", [None, 10])
@pytest.mark.parametrize(
    ("dtype", "s"),
    [
        (torch.float32, 1e-12),
        (torch.float32, 1e-20),
        (torch.float64, 1e-12),
        (torch.float64, 1e-18),
    ],
)
def test_a_first_order_term_far_above_the_scale_of_a(
    method: Any, k: int, block_size: int | None, dtype: torch.dtype, s: float
) -> None:
    """tau_c is below the rounding of Q: beside alpha e, w0 is next to nothing."""
    for seed in range(3):
        A, w0 = drawn(seed, 12, 10, torch.float64)
        # Nearly orthogonal columns, where IHT finds the best support.
        A = (torch.linalg.qr(A).Q + 0.01 * A).to(dtype)
        w0 = w0.to(dtype)
        dense = Dense((s * A).double().numpy(), w0.double().numpy(), 1e-3 * s * s, 1.0)
        solution = solve(
            s * A, w0, k, lam=dense.lam, alpha=1.0, method=method, block_size=block_size
        )
        reached = dense.objective(solution.w.double().numpy())
        assert reached <= 1.01 * dense.brute_force(k)


def test_a_gram_that_would_underflow_or_overflow_in_float32() -> None:
    """alpha = 0, so that the residual is as small or large as A."""
    for s in (1e-30, 1e-20, 1e12, 1e20, 1e30):
        for n, k, block_size in ((8, 12, None), (20, 12, None), (8, 30, 20)):
            A, w0 = drawn(0, n, 40, torch.float32)
            A = s * A
            dense = Dense(A.double().numpy(), w0.double().numpy(), LAM * s * s, 0.0)
            solution = solve(A, w0, k, lam=dense.lam, block_size=block_size)
            if block_size is None:
                truth = dense.minimiser(solution.support)
                np.testing.assert_allclose(solution.w.numpy(), truth, rtol=0, atol=1e-5)
            reached = dense.objective(solution.w.double().numpy())
            assert solution.objective == pytest.approx(reached, rel=1e-4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("block_size", [None, 10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [0, 12, 40])
def test_a_huge_ridge_leaves_the_weights_where_they_are(
    method: Any, block_size: int | None, dtype: torch.dtype, k: int
) -> None:
    A, w0 = drawn(0, 20, 40, dtype)
    largest = w0.abs().topk(k).indices.sort().values
    for lam in (1e40, 1e150, 1e300):
        solution = solve(A, w0, k, lam=lam, alpha=1.0, method=method, block_size=block_size)
        assert torch.equal(solution.support, largest)
        torch.testing.assert_close(solution.w[largest], w0[largest])


def test_sums_of_large_entries_are_not_taken_for_infinite_ones() -> None:
    A = torch.full((4, 6), 3e38)
    assert solve(A, torch.ones(6), 3, lam=0.0).w.isfinite().all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [(0, 0), (3, 5), (1, 2)])
def test_entries_that_are_not_finite_are_an_error(value: float, place: tuple[int, int]) -> None:
    A = torch.ones(4, 6)
    A[place] = value
    for laid_out in (A, A.t().contiguous().t()):
        with pytest.raises(ChitaError, match=naming("A")):
            solve(laid_out, torch.ones(6), 3, lam=0.1)


def test_a_ridge_that_overflows_times_n_is_an_error() -> None:
    with pytest.raises(ChitaError, match=naming("lam", 1e308)):
        solve(torch.ones(20, 4), torch.ones(4), 2, lam=1e308)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("s", [1e12, 1e16, 1e30])
@pytest.mark.parametrize("k", [12, 30])
def test_large_values_in_float32_give_the_loss_of_float64(method: Any, s: float, k: int) -> None:
    """The ridge is next to nothing beside A; all that is left is the rounding of the weights."""
    A, w0 = drawn(0, 20, 40, torch.float32)
    A = s * A
    dense = Dense(A.double().numpy(), w0.double().numpy(), LAM, ALPHA)
    start = dense.objective(torch.where(w0.abs() >= w0.abs().sort().values[-k], w0, 0).numpy())
    found = [solve(A.to(t), w0.to(t), k, lam=LAM, alpha=ALPHA, method=method)
             for t in (torch.float32, torch.float64)]  # fmt: skip
    reached = [dense.objective(solution.w.double().numpy()) / start for solution in found]
    assert reached[0] <= reached[1] * (1 + 1e-4) + 1e-10


def test_autocast_does_not_reach_the_solver() -> None:
    A, w0 = drawn(0, 20, 40, torch.float32)
    plain = [solve(A, w0, 12, lam=LAM, alpha=ALPHA, method=method) for method in METHODS]
    with torch.autocast("cpu", torch.bfloat16):
        found = [solve(A, w0, 12, lam=LAM, alpha=ALPHA, method=method) for method in METHODS]
    assert all(torch.equal(one.w, other.w) for one, other in zip(plain, found, strict=True))
