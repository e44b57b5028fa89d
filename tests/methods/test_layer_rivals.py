"""Wanda, RIA, SparseGPT and ALPS against slow, obvious versions of their papers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import chita
from chita import ChitaError
from chita.methods import get_method
from chita.methods.alps import alps
from chita.methods.ria import ria
from chita.methods.sparsegpt import sparsegpt
from chita.methods.wanda import wanda
from chita.solver.constraints.constraint import ANY_SUPPORT
from chita.solver.layer_wise.layer import Layer
from chita.solver.layer_wise.solve import solve_by_admm
from chita.solver.options import Options
from tests.solver.layer_wise.layers import normal, patterned, random_layer
from tests.support.messages import naming
from tests.support.pruning import points, snapshot, tiny

OPTIONS = Options()


def inputs_and_weights(seed: int, rows: int, inputs: int) -> tuple[Tensor, Tensor]:
    x = normal(seed, 40, inputs) @ normal(seed + 1, inputs, inputs)
    return x, normal(seed + 2, rows, inputs)


def layer_of(x: Tensor, w: Tensor, k: int, lam: float = 0.0, pattern: str | None = None) -> Layer:
    rule = ANY_SUPPORT if pattern is None else patterned(pattern, *w.shape)
    moment = (x.mT @ x / len(x))[None]
    return Layer.build(w.flatten(), moment, lam=lam, k=k, constraint=rule)


def relative_importance(x: Tensor, w: Tensor) -> Tensor:
    scores = torch.empty_like(w)
    for i in range(len(w)):
        for j in range(w.shape[1]):
            size = abs(float(w[i, j]))
            share = size / float(w[:, j].abs().sum()) + size / float(w[i].abs().sum())
            scores[i, j] = share * math.sqrt(float(x[:, j].norm()))
    return scores


def test_wanda_keeps_the_largest_of_each_row() -> None:
    x, w = inputs_and_weights(0, 5, 8)
    found, mask, *_ = wanda(layer_of(x, w, 20), OPTIONS)
    for row, kept in zip(w, mask[0], strict=True):
        scores = [abs(float(row[j])) * float(x[:, j].norm()) for j in range(8)]
        best = sorted(range(8), key=lambda j: -scores[j])[:4]
        assert sorted(best) == kept.nonzero()[:, 0].tolist()
    torch.testing.assert_close(found[0], w * mask[0])


def test_ria_keeps_the_largest_of_the_layer() -> None:
    x, w = inputs_and_weights(1, 5, 8)
    found, mask, *_ = ria(layer_of(x, w, 15), OPTIONS)
    order = relative_importance(x, w).flatten().argsort(descending=True)
    assert sorted(order[:15].tolist()) == mask.flatten().nonzero()[:, 0].tolist()
    torch.testing.assert_close(found[0], w * mask[0])


@pytest.mark.parametrize("method", [wanda, ria])
def test_scores_decide_within_the_groups_of_a_pattern(method: object) -> None:
    x, w = inputs_and_weights(2, 4, 8)
    _, mask, *_ = method(layer_of(x, w, 16, pattern="2:4"), OPTIONS)  # type: ignore[operator]
    scores = w.abs() * x.norm(dim=0) if method is wanda else relative_importance(x, w)
    for group, kept in zip(scores.view(-1, 4), mask.view(-1, 4), strict=True):
        assert sorted(group.topk(2).indices.tolist()) == kept.nonzero()[:, 0].tolist()


def slow_sparsegpt(layer: Layer, *, block: int, pattern: tuple[int, int] | None = None) -> Tensor:
    """OBS column by column: every step inverts the Hessian of the columns that are left."""
    w, hessian = layer.w0[0].clone(), layer.hessian[0]
    rows, inputs = w.shape
    mask = torch.ones_like(w, dtype=torch.bool)
    for j in range(inputs):
        width = pattern[1] if pattern else block
        if j % width == 0:  # choose the mask of the next columns
            stop = min(j + width, inputs)
            inverses = [float(torch.linalg.inv(hessian[c:, c:])[0, 0]) for c in range(j, stop)]
            scores = w[:, j:stop] ** 2 / torch.tensor(inverses)
            if pattern:
                kept = scores.topk(pattern[0], dim=1).indices
                mask[:, j:stop] = torch.zeros_like(mask[:, j:stop]).scatter_(1, kept, True)
            else:
                count = layer.k * stop // inputs - layer.k * j // inputs
                flat = torch.zeros(scores.numel(), dtype=torch.bool)
                flat[scores.flatten().topk(count).indices] = True
                mask[:, j:stop] = flat.view_as(scores)
        inverse = torch.linalg.inv(hessian[j:, j:])
        for r in range(rows):
            if not mask[r, j]:
                w[r, j:] -= w[r, j] / inverse[0, 0] * inverse[0]
    return w * mask


@pytest.mark.parametrize(("k", "block"), [(48, 4), (30, 12), (71, 5), (0, 4), (96, 4)])
def test_sparsegpt_is_obs_column_by_column(
    k: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chita.methods.sparsegpt.BLOCK", block)
    layer = random_layer(3, 8, 12, k=k)
    w, mask, *_ = sparsegpt(layer, OPTIONS)
    assert int(mask.sum()) == k
    torch.testing.assert_close(w[0], slow_sparsegpt(layer, block=block), rtol=1e-7, atol=1e-9)


def test_sparsegpt_reports_an_inverse_that_is_singular_by_rounding() -> None:
    layer = random_layer(3, 2, 2, k=2)
    layer.__dict__["inverse"] = torch.ones(1, 2, 2).double()
    with pytest.raises(ChitaError, match=naming("ridge", "0.01")):
        sparsegpt(layer, OPTIONS)


@pytest.mark.parametrize("block", [4, 8, 128])
@pytest.mark.parametrize("pattern", [(2, 4), (1, 4), (2, 3)])
def test_sparsegpt_chooses_the_groups_of_a_pattern_on_the_way(
    pattern: tuple[int, int], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chita.methods.sparsegpt.BLOCK", block)
    n, m = pattern
    rule = patterned(f"{n}:{m}", 6, 12)
    layer = random_layer(4, 6, 12, k=72 * n // m, constraint=rule)
    w, mask, *_ = sparsegpt(layer, OPTIONS)
    assert bool((mask.view(-1, m).sum(1) == n).all())
    expected = slow_sparsegpt(layer, block=block, pattern=pattern)
    torch.testing.assert_close(w[0], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("pattern", ["4x1", "2x2"])
def test_sparsegpt_keeps_whole_tiles(pattern: str) -> None:
    layer = random_layer(4, 8, 12, k=40, constraint=patterned(pattern, 8, 12))
    w, mask, *_ = sparsegpt(layer, OPTIONS)
    assert int(mask.sum()) == 40 and not w[~mask].any()
    kept = mask.flatten().nonzero()[:, 0]
    assert torch.equal(layer.constraint.largest(mask.flatten().double(), 40), kept)


def slow_alps(layer: Layer) -> tuple[Tensor, Tensor]:
    """ADMM with a dense solve in each iteration, then conjugate gradients row by row."""
    scale = layer.hessian[0].diagonal().sqrt()
    h = layer.hessian[0] / scale[:, None] / scale
    w0 = layer.w0[0] * scale
    d, v, rho = w0.clone(), torch.zeros_like(w0), 0.1
    supports = [_largest(w0, layer.k)]
    for t in range(1, 301):
        system = h + rho * torch.eye(len(h), dtype=h.dtype)
        x = torch.linalg.solve(system, (w0 @ h - v + rho * d).mT).mT
        z = x + v / rho
        supports.append(_largest(z, layer.k))
        d = z * supports[-1]
        v = v + rho * (x - d)
        if t % 3 == 0:
            changed = int((supports[-1] ^ supports[-4]).sum())
            if not changed and rho >= 1:
                break
            rho *= 1.3 if changed >= 0.1 * layer.k else 1.2 if changed >= 0.005 * layer.k else 1.1
    for r in range(len(d)):
        on = supports[-1][r]
        a, b, y = h[on][:, on], (w0[r] @ h)[on], d[r, on]
        residual = b - a @ y
        p = residual.clone()
        for _ in range(10):
            if float(residual.norm()) < 1e-13:
                break
            length = (residual @ residual) / (p @ a @ p)
            y, new = y + length * p, residual - length * (a @ p)
            p, residual = new + (new @ new) / (residual @ residual) * p, new
        d[r, on] = y
    return d / scale, supports[-1]


def _largest(x: Tensor, k: int) -> Tensor:
    mask = torch.zeros(x.numel(), dtype=torch.bool)
    mask[x.abs().flatten().topk(k).indices] = True
    return mask.view_as(x)


def test_alps_goes_on_while_rho_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the weights are too small to enter: the support never changes."""
    layer = random_layer(0, 10, 16, k=80)
    layer.w0[..., 8:] *= 1e-9
    picks, pick = [], Layer.pick

    def counted(self: Layer, scores: Tensor) -> Tensor:
        picks.append(pick(self, scores))
        return picks[-1]

    monkeypatch.setattr(Layer, "pick", counted)
    alps(layer, OPTIONS)
    assert all(torch.equal(mask, picks[0]) for mask in picks)
    assert len(picks) == 1 + 3 * 26  # 0.1 times 1.1 to the power of 25 is the first rho above 1


@pytest.mark.parametrize("k", [40, 75, 150])
def test_alps_is_admm_and_conjugate_gradients(k: int) -> None:
    for seed in range(3):
        layer = random_layer(seed, 10, 16, k=k)
        w, mask, *_ = alps(layer, OPTIONS)
        expected, support = slow_alps(layer)
        assert torch.equal(mask[0], support)
        torch.testing.assert_close(w[0], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("pattern", [None, "2:4", "4x1"])
def test_ours_is_below_the_rivals(pattern: str | None) -> None:
    """The error of the outputs, without the ridge, on layers of correlated inputs."""
    for seed in range(3):
        x, w = inputs_and_weights(10 * seed, 24, 32)
        layer = layer_of(x, w, 384, 0.01, pattern)
        errors = [
            float((x @ (method(layer, OPTIONS)[0][0] - w).mT).square().sum())
            for method in (solve_by_admm, alps, sparsegpt, wanda, ria)
        ]
        assert errors[0] < min(errors[1:])


@pytest.mark.parametrize("method", ["chita-layer", "wanda", "ria", "sparsegpt", "alps"])
@pytest.mark.parametrize("sparsity", [0.5, "1:2"])
def test_as_methods_of_prune(method: str, sparsity: float | str) -> None:
    """No samples are held out for a ridge, and a dead input loses its weights."""
    model, (x, t) = tiny(), points(60)
    x[:, 1] = 0.0
    before = snapshot(model)
    result = chita.prune(
        model, [(x, t)], sparsity=sparsity, method=method, batch=4, samples=15, progress=False
    )
    stage = result.stages[0]
    assert stage.ridge == (None if get_method(method).ridge == 0 else 0.01)
    assert stage.held_out_loss is None
    for mask in result.masks.values():
        assert int(mask.sum()) == mask.numel() // 2
    assert not model.get_parameter("0.weight")[:, 1].any()
    updated = not torch.equal(
        model.get_parameter("2.weight").data, before["2.weight"] * result.masks["2.weight"]
    )
    assert updated == (method not in ("wanda", "ria"))


def test_the_solver_of_chita_layer() -> None:
    supports = []
    for solver in ("admm", "iht"):
        model = tiny()
        result = chita.prune(
            model, [points(60)], sparsity=0.5, method="chita-layer", solver=solver, progress=False
        )
        supports.append({name: mask.sum().item() for name, mask in result.masks.items()})
    assert supports[0] == supports[1]
