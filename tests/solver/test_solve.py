import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from chita.errors import ChitaError
from chita.solver import Options, Solution, solve
from tests.solver.problems import dense_minimiser, dense_objective, random_problem
from tests.support.messages import naming

METHODS = ["bso", "cd", "iht"]


def data(seed: int = 0, n: int = 20, p: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    problem = random_problem(seed, n=n, p=p)
    return problem.matrix.whole().t().contiguous(), problem.w0


@pytest.mark.parametrize("method", METHODS)
def test_arrays_in_arrays_out_and_tensors_in_tensors_out(method: Any) -> None:
    A, w0 = data()
    tensors = solve(A, w0, 12, lam=0.05, alpha=1.0, method=method)
    arrays = solve(A.numpy(), w0.numpy(), 12, lam=0.05, alpha=1.0, method=method)
    assert isinstance(tensors.w, torch.Tensor)
    assert isinstance(tensors.support, torch.Tensor)
    assert isinstance(arrays.w, np.ndarray)
    assert isinstance(arrays.support, np.ndarray)
    assert np.array_equal(arrays.w, tensors.w.numpy())
    assert np.array_equal(arrays.support, tensors.support.numpy())
    assert arrays.objective == tensors.objective


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.int64, torch.float32),
    ],
)
def test_dtypes(given: torch.dtype, kept: torch.dtype) -> None:
    A, w0 = data()
    A, w0 = (10 * A).to(given), (10 * w0).to(given)
    solution = solve(A, w0, 12, lam=0.05, alpha=1.0)
    assert solution.w.dtype == kept
    same = solve(A.to(kept), w0.to(kept), 12, lam=0.05, alpha=1.0)
    assert torch.equal(solution.w, same.w)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("block_size", [None, 16])
@pytest.mark.parametrize("k", [0, 1, 12, 59, 60])
def test_what_is_reported_is_true(method: Any, block_size: int | None, k: int) -> None:
    A, w0 = data()
    problem = random_problem(0, n=20, p=60, lam=0.05, alpha=1.0)
    solution = solve(A, w0, k, lam=0.05, alpha=1.0, method=method, block_size=block_size)
    assert solution.objective == pytest.approx(dense_objective(problem, solution.w), rel=1e-10)
    assert len(solution.support) == k
    assert torch.equal(solution.support, solution.support.sort().values)
    assert set(solution.w.nonzero().squeeze(1).tolist()) <= set(solution.support.tolist())
    assert solution.history == sorted(solution.history, reverse=True)
    assert solution.history[0] == pytest.approx(problem.start(k).objective, rel=1e-12)
    assert solution.history[-1] == solution.objective
    assert 0 <= solution.iterations <= Options().iterations
    assert solution.jitter == 0.0


def test_bso_ends_at_the_minimiser_on_its_support() -> None:
    A, w0 = data()
    problem = random_problem(0, n=20, p=60, lam=0.05, alpha=1.0)
    for k in (12, 30):
        solution = solve(A, w0, k, lam=0.05, alpha=1.0)
        expected = dense_minimiser(problem, solution.support)
        torch.testing.assert_close(solution.w, expected, rtol=1e-8, atol=1e-8)


def test_everything_kept_without_first_order_term_changes_nothing() -> None:
    A, w0 = data()
    solution = solve(A, w0, 60, lam=0.05)
    assert torch.equal(solution.w, w0)
    assert solution.objective == 0.0
    assert solution.converged


def test_alpha_is_the_weight_of_the_first_order_term() -> None:
    A, w0 = data()
    for alpha in (0.0, 0.5, 1.0):
        problem = random_problem(0, n=20, p=60, lam=0.05, alpha=alpha)
        solution = solve(A, w0, 60, lam=0.05, alpha=alpha)
        torch.testing.assert_close(solution.w, dense_minimiser(problem, torch.arange(60)))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("block_size", [None, 1000])
def test_runs_are_bit_identical(method: Any, block_size: int | None) -> None:
    A, w0 = data(1, n=50, p=5000)
    A, w0 = A.float(), w0.float()

    def run() -> Solution:
        return solve(A, w0, 500, lam=1e-3, alpha=1.0, method=method, block_size=block_size)

    one, other = run(), run()
    assert torch.equal(one.w, other.w)
    assert one.history == other.history


def test_parameters_will_do_and_no_graph_is_made() -> None:
    A, w0 = data()
    solution = solve(A.requires_grad_(), torch.nn.Parameter(w0), 12, lam=0.05, alpha=1.0)
    assert not solution.w.requires_grad


def test_the_input_is_left_alone() -> None:
    A, w0 = data()
    kept = A.clone(), w0.clone()
    solve(A, w0, 12, lam=0.05, alpha=1.0)
    assert torch.equal(A, kept[0])
    assert torch.equal(w0, kept[1])


def test_too_few_iterations_are_reported() -> None:
    A, w0 = data()
    few = solve(A, w0, 12, lam=0.05, alpha=1.0, method="iht", iterations=1)
    assert few.iterations == 1
    assert not few.converged
    none = solve(A, w0, 12, lam=0.05, alpha=1.0, method="iht", iterations=0)
    assert torch.equal(none.w[none.support], w0[none.support])


def test_a_singular_system_is_reported() -> None:
    A, w0 = torch.ones(4, 10), torch.linspace(1, 2, 10)
    solution = solve(A, w0, 6, lam=0.0, alpha=1.0)
    assert solution.jitter > 0
    assert bool(solution.w.isfinite().all())
    assert solution.objective == pytest.approx(0.0, abs=1e-3)


GOOD: dict[str, Any] = {"A": torch.ones(3, 5), "w0": torch.ones(5), "k": 2, "lam": 0.1}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"A": torch.ones(5)}, naming("A", "w0", re.compile(r"\(5,\).*\(5,\)"))),
        ({"A": torch.ones(3, 4)}, naming("A", "w0", "(3, 4)", "(5,)")),
        ({"A": torch.ones(0, 5)}, naming("A", "(0, 5)")),
        ({"A": torch.ones(3, 5) * 1j}, naming("A", "w0", torch.complex64)),
        ({"A": torch.ones(3, 5, device="meta")}, naming("A", "w0", "meta", "cpu")),
        ({"A": "gradients"}, naming("A", "w0", "tensors")),
        ({"A": torch.tensor([[1.0, 2, 3, 4, torch.nan]])}, naming("A", "NaN")),
        ({"A": torch.tensor([[1.0, 2, 3, 4, torch.inf]])}, naming("A", "NaN")),
        ({"w0": torch.tensor([1.0, 2, 3, 4, torch.nan])}, naming("w0", "NaN")),
        ({"k": 6}, naming("k", 5, 6)),
        ({"k": -1}, naming("k", -1)),
        ({"k": 2.0}, naming("k", 2.0)),
        ({"lam": -1.0}, naming("lam", -1.0)),
        ({"lam": float("nan")}, naming("lam", "nan")),
        ({"lam": "auto"}, naming("lam", "'auto'")),
        ({"alpha": float("inf")}, naming("alpha", "inf")),
        ({"method": "obs"}, naming("method", "bso", "obs")),
        ({"block_size": 0}, naming("block_size=0")),
        ({"block_size": 2.5}, naming("block_size=2.5")),
        ({"layers": [2.0, 3]}, naming("layers=[2.0, 3]")),
        ({"A": torch.ones(3, 5).double(), "alpha": 1e200}, naming("alpha")),
        ({"block_size": 2, "layers": [2, 2]}, naming(5, "layers=[2, 2]")),
        ({"block_size": 2, "layers": [5, 0]}, naming("layers=[5, 0]")),
    ],
)
def test_errors_name_the_argument(wrong: dict[str, Any], message: str) -> None:
    arguments = {**GOOD, **wrong}
    with pytest.raises(ChitaError, match=message):
        solve(**arguments)


def test_a_numpy_integer_will_do_for_k() -> None:
    solution = solve(**{**GOOD, "k": np.int64(2)})
    assert len(solution.support) == 2
    assert {field.name for field in fields(solution)} >= {"w", "support", "history"}


@pytest.mark.parametrize(
    "change",
    [
        {"lam": 10**400},
        {"alpha": 10**400},
        {"gamma": 10**400},
        {"active": float("nan")},
        {"tol": True},
        {"layers": 5},
        {"layers": [True] * 60},
        {"block_size": True},
        {"k": True},
        {"method": []},
        {"A": torch.randn(20, 60).to_sparse()},
        {"A": torch.randn(20, 60).to_sparse_csr()},
        {"A": torch.randn(20, 60, device="meta"), "w0": torch.randn(60, device="meta")},
        {"w0": torch.randn(60).to_sparse()},
    ],
    ids=lambda change: "-".join(change),
)
def test_arguments_of_wrong_types(change: dict[str, Any]) -> None:
    A, w0 = data()
    with pytest.raises(ChitaError, match=naming(next(iter(change)))):
        solve(**{"A": A, "w0": w0, "k": 12, "lam": 0.05, **change})


def test_a_nested_tensor_is_refused() -> None:
    rows = torch.nested.nested_tensor([torch.randn(60), torch.randn(60)])
    with pytest.raises(ChitaError, match=naming("A", "nested")):
        solve(rows, torch.randn(60), 12, lam=0.05)


def test_more_shrinking_supports_than_weights_end() -> None:
    A, w0 = data()
    assert solve(A, w0, 3, lam=0.05, continuation=10**9).objective > 0
