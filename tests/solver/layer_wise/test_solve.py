"""The solvers of a layer: against all supports of tiny layers, and against each other."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

import chita
from chita.methods.alps import alps
from chita.solver.constraints.constraint import ANY_SUPPORT
from chita.solver.layer_wise.admm import admm
from chita.solver.layer_wise.backsolve import backsolve
from chita.solver.layer_wise.each_layer import PruneLayer
from chita.solver.layer_wise.layer import Layer
from chita.solver.layer_wise.matrix import LayerMatrix
from chita.solver.layer_wise.solve import solve_by_admm, solve_by_iht
from chita.solver.options import Options
from tests.solver.layer_wise.layers import dense_minimiser, patterned, random_layer

SOLVERS = [solve_by_admm, solve_by_iht]


def best_of_all_supports(layer: Layer) -> float:
    """The least objective over all supports of k weights."""
    best = torch.inf
    for kept in combinations(range(layer.w0.numel()), layer.k):
        mask = torch.zeros(layer.w0.numel(), dtype=torch.bool)
        mask[list(kept)] = True
        mask = mask.view_as(layer.w0)
        best = min(best, layer.objective(dense_minimiser(layer, mask)))
    return best


@pytest.mark.parametrize("solve", SOLVERS)
def test_tiny_layers_against_all_supports(solve: PruneLayer) -> None:
    """No solver is below the best of all supports; both are close to it."""
    ratios = []
    for seed in range(8):
        layer = random_layer(seed, 2, 4, k=4, lam=0.1)
        w, mask, *_ = solve(layer, Options())
        assert int(mask.sum()) == 4 and not w[~mask].any()
        ratios.append(layer.objective(w) / best_of_all_supports(layer))
    assert min(ratios) >= 1 - 1e-9
    assert sorted(ratios)[4] <= 1.1  # in most cases at or near the best


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("pattern", [None, "2:4", "1:4", "4:8", "4x1", "2x2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_supports_are_allowed_and_weights_exact(
    solve: PruneLayer, pattern: str | None, dtype: torch.dtype
) -> None:
    constraint = ANY_SUPPORT if pattern is None else patterned(pattern, 12, 16)
    k = 48 if pattern == "1:4" else 96
    layer = random_layer(0, 12, 16, k=k, constraint=constraint, dtype=dtype)
    w, mask, *_ = solve(layer, Options())
    kept = mask.flatten().nonzero()[:, 0]
    assert len(kept) == k
    scores = mask.flatten().double()
    assert torch.equal(constraint.largest(scores, k), kept)  # the mask is its own projection
    exact = dense_minimiser(layer, mask)
    assert layer.objective(w) == pytest.approx(layer.objective(exact), rel=1e-6)
    if dtype == torch.float64:
        torch.testing.assert_close(w, exact, rtol=1e-7, atol=1e-8)
    magnitude = layer.pick(layer.w0)
    assert layer.objective(w) < layer.objective(dense_minimiser(layer, magnitude))


@pytest.mark.parametrize("k", [0, 1, 191, 192])
@pytest.mark.parametrize("solve", SOLVERS)
def test_extreme_supports(solve: PruneLayer, k: int) -> None:
    layer = random_layer(0, 12, 16, k=k)
    w, mask, *_ = solve(layer, Options())
    assert int(mask.sum()) == k
    if k == 192:
        torch.testing.assert_close(w, layer.w0, rtol=1e-8, atol=1e-9)


def test_iht_is_the_papers_on_the_whole_matrix() -> None:
    """All rows at once give what chita.solve gives for the block-diagonal A of all rows."""
    layer = random_layer(2, 3, 6, k=9)
    scale = layer.diagonal.sqrt()
    root = layer.factor[0].mT / scale[0]
    whole = torch.block_diag(root, root, root)
    options = {"active": 0, "iterations": 12, "t_cd": 3, "tol": 0.0}
    found = chita.solve(whole, (layer.w0 * scale).flatten(), 9, lam=0.0, method="cd", **options)
    w, mask, *_ = solve_by_iht(layer, Options.named(options))
    assert mask.flatten().nonzero()[:, 0].tolist() == found.support.tolist()
    assert layer.objective(w) <= found.objective * (1 + 1e-9)


def test_the_matrix_of_a_layer_is_block_diagonal() -> None:
    layer = random_layer(2, 3, 5, k=9, groups=2)
    matrix = LayerMatrix(layer)
    roots = layer.factor.mT / layer.diagonal.sqrt()
    dense = torch.block_diag(*(roots[g] for g in range(2) for _ in range(3)))
    torch.testing.assert_close(matrix.whole(), dense.mT)
    d, index = torch.linspace(-1, 1, 30).double(), torch.tensor([2, 3, 17])
    torch.testing.assert_close(matrix.forward(d), dense @ d)
    torch.testing.assert_close(matrix.adjoint(d), dense.mT @ d)
    torch.testing.assert_close(matrix.columns(index).whole(), dense.mT[index])
    torch.testing.assert_close(matrix.read(7, 19), dense.mT[7:19])
    assert matrix.columns(index[:0]).whole().shape == (0, 30)
    problem = matrix.problem(layer)
    w = layer.w0 * layer.pick(layer.w0)
    point = problem.at(matrix.scaled(w), matrix.mask(torch.arange(9)).flatten().nonzero()[:, 0])
    assert point.objective == pytest.approx(layer.objective(w))


def test_admm_beats_the_masks_of_scores() -> None:
    """On correlated inputs its support is better than those of magnitude and of Wanda."""
    for seed in range(4):
        layer = random_layer(seed, 24, 32, k=384)
        found = layer.objective(backsolve(layer, admm(layer)[1]).w)
        for scores in (layer.w0, layer.w0 * layer.diagonal.sqrt()):
            assert found < 0.9 * layer.objective(backsolve(layer, layer.pick(scores)).w)


def test_admm_beats_the_support_of_alps() -> None:
    """With the exact minimiser on both supports, so that only the supports differ."""
    for seed in range(6):
        layer = random_layer(seed, 24, 32, k=230)
        ours, theirs = (
            layer.objective(backsolve(layer, mask).w)
            for mask in (admm(layer)[1], alps(layer, Options())[1])
        )
        assert ours < theirs


@pytest.mark.parametrize("pattern", [None, "2:4", "2x2"])
def test_admm_returns_a_point_near_the_minimiser(pattern: str | None) -> None:
    constraint = ANY_SUPPORT if pattern is None else patterned(pattern, 24, 32)
    layer = random_layer(0, 24, 32, k=384, constraint=constraint)
    z, mask = admm(layer)
    assert not z[~mask].any()
    assert layer.objective(z) <= 1.05 * layer.objective(backsolve(layer, mask).w)
