"""The minimiser on a support, against one dense solve for each row."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

import chita
from chita.solver.layer_wise.backsolve import backsolve, conjugate_gradients, factorise
from chita.solver.layer_wise.row_systems import system_of
from tests.solver.layer_wise.layers import dense_minimiser, normal, random_layer


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("lam", [1e-4, 0.01, 1.0])
@pytest.mark.parametrize("k", [0, 1, 20, 75, 120])
def test_is_the_dense_solution(k: int, lam: float, groups: int) -> None:
    layer = random_layer(1, 12 // groups, 10, k=k, groups=groups, lam=lam)
    mask = layer.pick(normal(3, *layer.w0.shape))
    w = backsolve(layer, mask)
    torch.testing.assert_close(w, dense_minimiser(layer, mask), rtol=1e-7, atol=1e-9)
    assert not w[~mask].any()


def test_rows_that_do_not_converge_are_factorised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chita.solver.layer_wise.backsolve.ROUNDS", 1)
    monkeypatch.setattr("chita.solver.layer_wise.backsolve.STEPS", 2)
    monkeypatch.setattr("chita.solver.layer_wise.backsolve.WORKSPACE", 8 * 30**2)  # a row at a time
    layer = random_layer(5, 7, 30, k=100)
    mask = layer.pick(layer.w0)
    torch.testing.assert_close(
        backsolve(layer, mask), dense_minimiser(layer, mask), rtol=1e-8, atol=1e-10
    )


def test_float32_weights_are_solved_in_float64() -> None:
    layer = random_layer(5, 40, 60, k=1200, dtype=torch.float32)
    mask = layer.pick(layer.w0)
    exact = layer.objective(dense_minimiser(layer, mask))
    assert layer.objective(backsolve(layer, mask)) == pytest.approx(exact, rel=1e-6)


def test_factorise_pads_short_rows() -> None:
    layer = random_layer(2, 3, 6, k=0)
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 1]]).bool()
    found = factorise(layer.hessian[0], layer.w0[0] @ layer.hessian[0], mask)
    torch.testing.assert_close(found, dense_minimiser(layer, mask[None])[0])


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
    w = backsolve(layer, mask)
    torch.testing.assert_close(w[0], torch.stack([row.w for row in rows]), rtol=1e-7, atol=1e-9)
    assert layer.objective(w) == pytest.approx(sum(row.objective for row in rows), rel=1e-9)
