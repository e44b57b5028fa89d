"""A layer whose rows gradients couple: against dense algebra over all its weights."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import Tensor

import chita
from chita import ChitaError
from chita.solver.layer_wise.backsolve import backsolve, conjugate_gradients
from chita.solver.layer_wise.exchange import exchange
from chita.solver.layer_wise.gradient_part import CoupledInverse, GradientPart
from chita.solver.layer_wise.layer import Layer
from chita.solver.layer_wise.row_systems import system_of
from chita.solver.layer_wise.scaled_curvature import scaled_curvature
from chita.solver.layer_wise.solve import solve_by_admm
from chita.solver.options import Options
from tests.solver.layer_wise.layers import (
    correlated_moment,
    coupled_layer,
    normal,
    patterned,
    random_layer,
)
from tests.support.messages import naming, says


def dense(layer: Layer) -> tuple[Tensor, Tensor]:
    """The second derivatives of Q over all weights, (p, p), and A, (n, p)."""
    assert layer.gradients is not None
    a = layer.gradients.columns.flatten(0, 2).mT.double()
    blocks = [layer.hessian[g] for g in range(len(layer.w0)) for _ in range(layer.w0.shape[1])]
    return torch.block_diag(*blocks) + a.mT @ a, a


def dense_minimiser(layer: Layer, mask: Tensor) -> Tensor:
    """The minimiser of Q on a support, by one solve for all weights."""
    assert layer.gradients is not None
    h, a = dense(layer)
    w0, kept = layer.w0.flatten().double(), mask.flatten().nonzero()[:, 0]
    right = (h @ w0 - a.mT @ layer.gradients.offset.double())[kept]
    w = torch.zeros_like(w0)
    w[kept] = torch.linalg.solve(h[kept][:, kept], right)
    return w.view_as(layer.w0)


def dense_objective(layer: Layer, w: Tensor) -> float:
    assert layer.gradients is not None
    h, a = dense(layer)
    d, c = (w.double() - layer.w0.double()).flatten(), layer.gradients.offset.double()
    return float(d @ h @ d / 2 + c @ a @ d + c @ c / 2)


@pytest.mark.parametrize("piece", [1, 40, 1 << 22])
def test_products(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chita.solver.layer_wise.gradient_part.PIECE", piece)
    part = GradientPart(normal(0, 2, 3, 4, 5), normal(1, 5))
    a, d, r = part.columns.flatten(0, 2).mT, normal(2, 2, 3, 4), normal(3, 5)
    torch.testing.assert_close(part.forward(d), a @ d.flatten())
    torch.testing.assert_close(part.residual(d), a @ d.flatten() + part.offset)
    torch.testing.assert_close(part.adjoint(r), (a.mT @ r).view(2, 3, 4))
    torch.testing.assert_close(part.squares(), (a.mT @ a).diagonal().view(2, 3, 4))
    scale = normal(4, 2, 1, 4).abs()
    weights = scale.expand(2, 3, 4).flatten()
    torch.testing.assert_close(part.gram(scale), a * weights @ a.mT)
    inverse = torch.linalg.inv(torch.diag(1 / weights) + a.mT @ a)
    torch.testing.assert_close(CoupledInverse(part, scale)(d).flatten(), inverse @ d.flatten())


@pytest.mark.parametrize("groups", [1, 2])
def test_the_objective_and_its_gradient(groups: int) -> None:
    layer = coupled_layer(1, 6 // groups, 5, k=15, groups=groups)
    w = normal(9, *layer.w0.shape).requires_grad_()
    h, a = dense(layer)
    d = (w - layer.w0).flatten()
    assert layer.gradients is not None
    value = d @ h @ d / 2 + layer.gradients.offset @ a @ d
    value.backward()
    assert w.grad is not None
    torch.testing.assert_close(layer.gradient(w.detach()), w.grad)
    assert layer.objective(w.detach()) == pytest.approx(dense_objective(layer, w.detach()))


def test_both_parts_are_divided_by_the_mean_of_their_diagonals() -> None:
    layer = coupled_layer(2, 6, 5, k=15, lam=0.0)
    assert float(dense(layer)[0].diagonal().mean()) == pytest.approx(1.0)


def test_an_input_is_dead_only_without_gradients() -> None:
    moment, columns = correlated_moment(0, 4), normal(1, 1, 3, 4, 2)
    for each in (1, 2):
        moment[0, each] = moment[0, :, each] = 0.0
    columns[:, :, 1] = 0.0
    layer = Layer.build(
        normal(2, 12),
        moment,
        lam=0.1,
        k=6,
        constraint=random_layer(0, 3, 4, k=6).constraint,
        gradients=GradientPart(columns, normal(3, 2)),
    )
    assert not layer.w0[..., 1].any() and bool(layer.w0[..., [0, 2, 3]].all())


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("lam", [1e-4, 0.01, 1.0])
@pytest.mark.parametrize("k", [0, 1, 20, 75, 120])
def test_backsolve_is_the_dense_solution(k: int, lam: float, groups: int) -> None:
    layer = coupled_layer(1, 12 // groups, 10, k=k, groups=groups, lam=lam)
    mask = layer.pick(normal(3, *layer.w0.shape))
    w = backsolve(layer, mask).w
    torch.testing.assert_close(w, dense_minimiser(layer, mask), rtol=1e-7, atol=1e-8)
    assert not w[~mask].any()


def test_coupled_rows_that_do_not_converge_are_solved_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chita.solver.layer_wise.backsolve.ROUNDS", 1)
    monkeypatch.setattr("chita.solver.layer_wise.backsolve.STEPS", 2)
    layer = coupled_layer(5, 7, 30, k=100)
    mask = layer.pick(layer.w0)
    torch.testing.assert_close(
        backsolve(layer, mask).w, dense_minimiser(layer, mask), rtol=1e-8, atol=1e-9
    )


def test_coupled_rows_that_are_not_solved_are_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("ROUNDS", "STEPS", "LAST_STEPS"):
        monkeypatch.setattr(f"chita.solver.layer_wise.backsolve.{name}", 1)
    layer = coupled_layer(5, 7, 30, k=100)
    found = backsolve(layer, layer.pick(layer.w0))
    assert not found.converged
    assert says(caplog.text, "converged", "ridge")


def test_float32_weights_are_solved_in_float64() -> None:
    layer = coupled_layer(5, 40, 60, k=1200, dtype=torch.float32)
    mask = layer.pick(layer.w0)
    exact = dense_objective(layer, dense_minimiser(layer, mask))
    assert dense_objective(layer, backsolve(layer, mask).w) == pytest.approx(exact, rel=1e-6)


def test_conjugate_gradients_need_no_step_for_each_gradient() -> None:
    """With an almost diagonal H, two steps suffice for any number of rows of A."""
    layer = coupled_layer(8, 9, 20, k=90, lam=1e4)
    mask = layer.pick(layer.w0)
    start = layer.w0 * mask
    right = -layer.gradient(start) * mask
    near = start + conjugate_gradients(system_of(layer, mask), right, steps=2)
    torch.testing.assert_close(near, dense_minimiser(layer, mask), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
def test_the_step_of_admm_is_the_dense_one(groups: int) -> None:
    """In the units of ADMM, which do not differ between rows."""
    layer = coupled_layer(4, 6 // groups, 5, k=15, groups=groups)
    curvature, (h, _) = scaled_curvature(layer), dense(layer)
    scale = curvature.scale.expand(layer.w0.shape).flatten()
    h = h / scale / scale[:, None]
    x = normal(7, *layer.w0.shape)
    expected = layer.gradient(x / curvature.scale) / curvature.scale
    torch.testing.assert_close(curvature.descent(x), -expected)
    damped = h + 0.3 * torch.eye(len(h), dtype=h.dtype)
    v, right = normal(8, *x.shape), 0.3 * x + curvature.descent(curvature.w0)
    moved = v.flatten() + torch.linalg.solve(damped, right.flatten())
    torch.testing.assert_close(curvature.step(0.3)(x, v).flatten(), moved)


def test_exchanges_never_raise_the_objective() -> None:
    lowered = 0
    for seed in range(6):
        layer = coupled_layer(seed, 10, 16, k=80)
        mask = layer.pick(layer.w0 * layer.diagonal.sqrt())
        w = backsolve(layer, mask).w
        moved, other = exchange(layer, w, mask)
        assert layer.objective(moved) <= layer.objective(w)
        assert int(other.sum()) == 80 and not moved[~other].any()
        lowered += layer.objective(moved) < layer.objective(w)
    assert lowered >= 5


def test_tiny_layers_against_all_supports() -> None:
    ratios = []
    for seed in range(8):
        layer = coupled_layer(seed, 2, 4, k=4, lam=0.1)
        w, mask, *_ = solve_by_admm(layer, Options())
        assert int(mask.sum()) == 4 and not w[~mask].any()
        best = torch.inf
        for kept in combinations(range(8), 4):
            other = torch.zeros(8, dtype=torch.bool)
            other[list(kept)] = True
            point = dense_minimiser(layer, other.view_as(layer.w0))
            best = min(best, dense_objective(layer, point))
        ratios.append(dense_objective(layer, w) / best)
    assert min(ratios) >= 1 - 1e-9
    assert sorted(ratios)[4] <= 1.2


@pytest.mark.parametrize("pattern", ["2:4", "1:4", "4x1"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_patterns(pattern: str, dtype: torch.dtype) -> None:
    constraint = patterned(pattern, 12, 16)
    k = 48 if pattern == "1:4" else 96
    layer = coupled_layer(0, 12, 16, k=k, constraint=constraint, dtype=dtype)
    w, mask, *_ = solve_by_admm(layer, Options())
    kept = mask.flatten().nonzero()[:, 0]
    assert torch.equal(constraint.largest(mask.flatten().double(), k), kept)
    exact = dense_objective(layer, dense_minimiser(layer, mask))
    assert dense_objective(layer, w) == pytest.approx(exact, rel=1e-6)
    magnitude = layer.pick(layer.w0)
    assert exact < dense_objective(layer, dense_minimiser(layer, magnitude))


def test_gradients_alone_are_the_problem_of_chita_solve() -> None:
    """Without moments: the same minimiser and objective as chita.solve on the same support."""
    layer = coupled_layer(3, 6, 8, k=24, lam=0.05, moment=False)
    assert layer.gradients is not None
    _, a = dense(layer)
    part = replace(layer.gradients, offset=torch.full((5,), 0.3).double())
    layer = replace(layer, gradients=part)
    w0, n = layer.w0.flatten(), len(a)
    for method in ("bso", "cd"):
        found = chita.solve(a, w0, 24, lam=0.05 / n, alpha=0.3, method=method)
        mask = torch.zeros(48, dtype=torch.bool)
        mask[found.support] = True
        w = backsolve(layer, mask.view_as(layer.w0)).w
        assert layer.objective(w) <= found.objective * (1 + 1e-9)
        if method == "bso":
            torch.testing.assert_close(w.flatten(), found.w, rtol=1e-7, atol=1e-9)
            assert layer.objective(w) == pytest.approx(found.objective, rel=1e-6)


def test_below_the_solvers_of_the_whole_problem_with_gradients_alone() -> None:
    for seed in range(4):
        layer = coupled_layer(seed, 24, 32, k=384, moment=False, samples=20)
        assert layer.gradients is not None
        part = replace(layer.gradients, offset=torch.zeros(20).double())
        layer = replace(layer, gradients=part)
        w, *_ = solve_by_admm(layer, Options())
        _, a = dense(layer)
        for method in ("bso", "cd"):
            found = chita.solve(a, layer.w0.flatten(), 384, lam=0.01 / 20, method=method)
            assert layer.objective(w) < found.objective


def test_gradients_far_above_the_curvature_of_the_inputs_need_a_ridge() -> None:
    part = coupled_layer(1, 1, 2, k=1, samples=5).gradients  # five gradients of rank 2
    assert part is not None
    with pytest.raises(ChitaError, match=naming("ridge", "0.01")):
        CoupledInverse(part.scaled(1e9), torch.full((1, 1, 2), 1e9).double())
