"""The minimiser on a support, against one dense solve for each row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

import chita
from chita.solver.constraints.constraint import ANY_SUPPORT
from chita.solver.layer_wise.backsolve import _slow, backsolve, conjugate_gradients
from chita.solver.layer_wise.layer import Layer
from chita.solver.layer_wise.row_factors import factorise
from chita.solver.layer_wise.row_systems import system_of
from tests.solver.layer_wise.layers import dense_minimiser, normal, random_layer
from tests.support.messages import says


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("lam", [1e-4, 0.01, 1.0])
@pytest.mark.parametrize("k", [0, 1, 20, 75, 120])
def test_is_the_dense_solution(k: int, lam: float, groups: int) -> None:
    layer = random_layer(1, 12 // groups, 10, k=k, groups=groups, lam=lam)
    mask = layer.pick(normal(3, *layer.w0.shape))
    w = backsolve(layer, mask).w
    torch.testing.assert_close(w, dense_minimiser(layer, mask), rtol=1e-7, atol=1e-9)
    assert not w[~mask].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slow_rows_are_factorised(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []

    def watched(*given: Any) -> Any:
        solved.append(given[-1].clone())
        return factorise(*given)

    monkeypatch.setattr("chita.solver.layer_wise.backsolve.factorise", watched)
    monkeypatch.setattr("chita.solver.layer_wise.backsolve.STEPS", 2)
    layer = random_layer(5, 7, 30, k=100, dtype=dtype)
    mask = layer.pick(layer.w0)
    found = backsolve(layer, mask)
    torch.testing.assert_close(found.w, dense_minimiser(layer, mask), rtol=1e-4, atol=1e-4)
    assert found.converged and found.jitter == 0
    assert solved[0].all()
    assert len(solved) <= 2  # a second round corrects the rounding of the first, if at all


def test_few_rows_are_slow() -> None:
    """Three rows with an energy of 0.01 after a tenth of the steps, where 1e-8 is wanted."""
    reached = torch.tensor([0.01, 0.2, 2.0])
    assert _slow(reached, torch.full((3,), 1e-8), 0.1).tolist() == [False, True, True]


def test_a_singular_support_is_solved_with_a_jitter_that_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x = normal(0, 8, 4)
    x[:, 1] = x[:, 0]
    layer = Layer.build(normal(1, 12), (x.mT @ x)[None], lam=-1e-12, k=12, constraint=ANY_SUPPORT)
    mask = torch.ones_like(layer.w0, dtype=torch.bool)
    found = backsolve(layer, mask, normal(2, 1, 3, 4))
    assert found.jitter > 0
    assert says(caplog.text, "singular", "diagonal")
    assert layer.objective(found.w) < 1e-6 * layer.objective(torch.zeros_like(found.w))


def test_float32_weights_are_solved_in_float64() -> None:
    layer = random_layer(5, 40, 60, k=1200, dtype=torch.float32)
    mask = layer.pick(layer.w0)
    exact = layer.objective(dense_minimiser(layer, mask))
    assert layer.objective(backsolve(layer, mask).w) == pytest.approx(exact, rel=1e-6)


def test_conjugate_gradients_lower_the_objective_in_each_step() -> None:
    layer = random_layer(8, 9, 20, k=90)
    mask = layer.pick(layer.w0)
    start = layer.w0 * mask
    right = -layer.gradient(start) * mask
    values = [
        layer.objective(start + conjugate_gradients(system_of(layer, mask), right, steps=steps))
        for steps in range(12)
    ]
    assert all(after < before for before, after in pairwise(values))


def test_all_rows_at_once_are_row_by_row_solves() -> None:
    """One Gram matrix for all rows gives what chita.solve gives row by row."""
    layer = random_layer(4, 6, 8, k=24)
    root = layer.factor[0].mT
    rows = [chita.solve(root, w0, k=4, lam=0.0) for w0 in layer.w0[0]]
    mask = torch.zeros_like(layer.w0, dtype=torch.bool)
    for r, row in enumerate(rows):
        mask[0, r, row.support] = True
    w = backsolve(layer, mask).w
    torch.testing.assert_close(w[0], torch.stack([row.w for row in rows]), rtol=1e-7, atol=1e-9)
    assert layer.objective(w) == pytest.approx(sum(row.objective for row in rows), rel=1e-9)
