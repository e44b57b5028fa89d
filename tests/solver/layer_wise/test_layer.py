"""The problem of one layer against its definition."""

from __future__ import annotations

import pytest
import torch

from chita import ChitaError
from chita.curvature.source import no_rows
from chita.solver.algorithm import Layout
from chita.solver.constraints.constraint import ANY_SUPPORT
from chita.solver.layer_wise.layer import Layer, layers_of
from chita.solver.problem import Problem
from tests.solver.layer_wise.layers import (
    correlated_moment,
    dense_objective,
    normal,
    patterned,
    random_layer,
)
from tests.support.messages import naming


def test_the_ridge_is_relative_to_the_inputs() -> None:
    """Inputs of another size give the same problem."""
    w0, moment = normal(0, 24), correlated_moment(1, 6)
    one, other = (
        Layer.build(w0, scale * moment, lam=0.3, k=5, constraint=ANY_SUPPORT)
        for scale in (1.0, 1e6)
    )
    torch.testing.assert_close(one.hessian, other.hessian)
    mean = float(moment[0].diagonal().mean())
    torch.testing.assert_close(one.hessian[0], moment[0] / mean + 0.3 * torch.eye(6).double())


def test_objective_and_gradient() -> None:
    layer = random_layer(3, 4, 6, k=9, groups=2)
    w = normal(9, 2, 4, 6).requires_grad_()
    d = w - layer.w0
    value = sum((d[g] @ layer.hessian[g] * d[g]).sum() / 2 for g in range(2))
    (gradient,) = torch.autograd.grad(value, w)
    torch.testing.assert_close(layer.gradient(w.detach()), gradient)
    assert layer.objective(w.detach()) == pytest.approx(dense_objective(layer, w.detach()))


def test_weights_of_dead_inputs_are_zero() -> None:
    moment = correlated_moment(1, 6)
    moment[:, 2], moment[:, :, 2] = 0.0, 0.0
    layer = Layer.build(normal(0, 24), moment, lam=0.0, k=10, constraint=ANY_SUPPORT)
    assert not layer.w0[..., 2].any() and bool(layer.w0[..., 3].all())
    assert torch.isfinite(layer.inverse).all()


def test_dependent_inputs_without_ridge_are_an_error() -> None:
    x = normal(0, 1, 3, 6)
    layer = Layer.build(normal(1, 12), x.mT @ x, lam=0.0, k=6, constraint=ANY_SUPPORT)
    with pytest.raises(ChitaError, match=naming("ridge", "0.01")):
        _ = layer.inverse


@pytest.mark.parametrize("k", [0, 7, 12, 24])
def test_pick_by_row_keeps_as_many_in_each_row(k: int) -> None:
    layer = random_layer(0, 4, 6, k=k)
    scores = normal(5, 1, 4, 6)
    mask = layer.pick_by_row(scores)
    counts = mask.sum(-1)[0].tolist()
    assert sum(counts) == k and max(counts) - min(counts) <= 1
    for row, kept in zip(scores[0].abs(), mask[0], strict=True):
        if 0 < int(kept.sum()) < 6:
            assert row[kept].min() > row[~kept].max()


def test_pick_by_row_follows_a_pattern() -> None:
    layer = random_layer(0, 4, 8, k=16, constraint=patterned("2:4", 4, 8))
    mask = layer.pick_by_row(normal(5, 1, 4, 8))
    assert bool((mask.view(-1, 4).sum(1) == 2).all())


def test_layers_of_a_problem_keep_the_same_share() -> None:
    shapes = [(1, 4, 6), (2, 5, 4)]
    moments = tuple(correlated_moment(i, shape[2], shape[0]) for i, shape in enumerate(shapes))
    w0 = normal(7, 64)
    problem = Problem.build(no_rows(w0), w0, lam=0.01, alpha=0.0, moments=moments)
    first, second = layers_of(problem, 32, Layout((24, 40)))
    assert (first.k, second.k) == (12, 20)
    assert first.w0.shape == (1, 4, 6) and second.w0.shape == (2, 5, 4)
    torch.testing.assert_close(torch.cat([first.w0.flatten(), second.w0.flatten()]), w0)


def test_a_single_layer_keeps_all_weights_of_its_problem() -> None:
    w0 = normal(7, 24)
    problem = Problem.build(
        no_rows(w0), w0, lam=0.01, alpha=0.0, moments=(correlated_moment(0, 6),)
    )
    (layer,) = layers_of(problem, 11, Layout((24,)))
    assert layer.k == 11 and layer.pick(layer.w0).sum() == 11
