"""L-OBS against dense algebra: every output unit with its own Hessian, weight after weight."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from chita.curvature.source import no_rows
from chita.methods.l_obs import LayerWise
from chita.solver.algorithm import Layout
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.solve import Solution, solve_problem

SHAPES = [(1, 4, 5), (2, 3, 4), (1, 2, 9)]  # groups, outputs of a group, inputs
SIZES = tuple(groups * outputs * inputs for groups, outputs, inputs in SHAPES)


def random_layers(seed: int) -> tuple[list[Tensor], Tensor]:
    """Second moments (groups, i, i) of each layer, and the weights."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs = [normal(groups, 12, width) for groups, _, width in SHAPES]
    return [x.mT @ x / 12 for x in inputs], normal(sum(SIZES))


def pruned(moments: list[Tensor], w0: Tensor, k: int, lam: float) -> Solution:
    problem = Problem.build(no_rows(w0), w0, lam=lam, alpha=1.0, moments=tuple(moments))
    return solve_problem(problem, k, LayerWise(), options=Options(), layout=Layout(SIZES))


def dense(moment: Tensor, w: Tensor, kept: int, lam: float) -> tuple[Tensor, list[int]]:
    """One layer as one big block-diagonal Hessian, and the weights that stay."""
    groups, inputs = len(moment), moment.shape[-1]
    outputs = len(w) // (groups * inputs)
    blocks = [moment[g] for g in range(groups) for _ in range(outputs)]
    hessian = torch.block_diag(*blocks) + lam * torch.eye(len(w), dtype=torch.float64)
    inverse = torch.linalg.inv(hessian)
    order = sorted(range(len(w)), key=lambda q: float(w[q] ** 2 / inverse[q, q]))
    removed = order[: len(w) - kept]
    moved = w.clone()
    for q in removed:
        moved -= inverse[:, q] * w[q] / inverse[q, q]
    moved[removed] = 0.0
    return moved, sorted(order[len(w) - kept :])


@pytest.mark.parametrize("lam", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("k", [0, 15, 31, 50, sum(SIZES)])
def test_is_dense_algebra_layer_by_layer(k: int, lam: float) -> None:
    for seed in range(5):
        moments, w0 = random_layers(seed)
        solution = pruned(moments, w0, k, lam)
        assert len(solution.support) == k
        start = 0
        for moment, size in zip(moments, SIZES, strict=True):
            stop = start + size
            here = (solution.support >= start) & (solution.support < stop)
            assert abs(int(here.sum()) - k * size / sum(SIZES)) <= 1
            moved, kept = dense(moment, w0[start:stop], int(here.sum()), lam)
            torch.testing.assert_close(solution.w[start:stop], moved, rtol=1e-8, atol=1e-8)
            assert (solution.support[here] - start).tolist() == kept
            start = stop


def test_one_weight_is_removed_at_the_least_cost() -> None:
    """For a single weight the update is exact: no other moves of the rest cost less."""
    moments, w0 = random_layers(7)
    solution = pruned(moments, w0, sum(SIZES) - 1, 0.05)
    (gone,) = set(range(sum(SIZES))) - set(solution.support.tolist())
    start = max(s for s in (0, SIZES[0], SIZES[0] + SIZES[1]) if s <= gone)
    layer = [0, SIZES[0], SIZES[0] + SIZES[1]].index(start)
    moment, width = moments[layer], SHAPES[layer][2]
    row, i = divmod(gone - start, width)
    hessian = moment[row // SHAPES[layer][1]] + 0.05 * torch.eye(width, dtype=torch.float64)
    others = [j for j in range(width) if j != i]
    w = w0[start + row * width : start + (row + 1) * width]
    # Minimise 1/2 d^T H d over d with d_i = -w_i.
    best = torch.linalg.solve(hessian[others][:, others], hessian[others, i] * w[i])
    moved = solution.w[start + row * width : start + (row + 1) * width]
    torch.testing.assert_close(moved[others], w[others] + best, rtol=1e-8, atol=1e-10)


def test_float32_weights() -> None:
    moments, w0 = random_layers(3)
    single, double = (pruned(moments, w, 30, 0.1).w for w in (w0.float(), w0))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-6)


def test_a_ridge_of_another_order_of_magnitude_changes_the_units_of_the_moments() -> None:
    """The solver rescales a problem with a tiny mu; the moments are rescaled with it."""
    moments, w0 = random_layers(5)
    tiny = [1e-20 * moment for moment in moments]
    scaled, plain = pruned(tiny, w0, 30, 1e-21), pruned(moments, w0, 30, 0.1)
    assert scaled.support.tolist() == plain.support.tolist()
    torch.testing.assert_close(scaled.w, plain.w, rtol=1e-6, atol=1e-9)
