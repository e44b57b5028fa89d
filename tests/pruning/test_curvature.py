"""A at the weights of a stage, and what comes with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from chita.model.weights import Weights
from chita.pruning.auto.candidates import CandidateSpace
from chita.pruning.calibration import calibrate
from chita.pruning.config import PruneConfig
from chita.pruning.curvature import Curvature
from chita.pruning.policy import policy_for
from chita.pruning.supports import Supports
from chita.solver.algorithm import Layout
from chita.solver.division import Division
from chita.solver.ranks import ALONE
from tests.support.pruning import cut, points, tiny


def curvature(**arguments: Any) -> tuple[Curvature, torch.nn.Sequential]:
    """On 24 samples, two in a row, in their order."""
    model = tiny()
    weights = Weights(model)
    config = PruneConfig(**{"sparsity": 0.5, "ridge": 0.1, "batch": 2, **arguments})
    data = calibrate(model, tuple(cut(points(24), 24)), None, config)
    space = CandidateSpace.of(config, data.rows, weights.size)
    supports, division = Supports(model, weights, config), Division(ALONE, Layout(weights.sizes))
    return Curvature(model, weights, data, policy_for(config), supports, division, space), model


def test_rows_are_gradients_at_the_weights_and_the_next_samples_follow() -> None:
    """Ten rows a stage of the twelve there are: the second stage goes round."""
    found, model = curvature(method="chita++", samples=10)
    weights, (x, t) = Weights(model), points(24)
    places = torch.arange(40) % 24
    for stage in range(2):
        around = found.at(weights.vector())
        rows, losses = [], []
        for pair in places[20 * stage : 20 * (stage + 1)].view(10, 2):
            loss = functional.cross_entropy(model(x[pair]), t[pair])
            parameters = [weight.parameter for weight in weights]
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
            losses.append(loss.item())
        product = around.matrix.adjoint(torch.ones(10, dtype=torch.float64))
        torch.testing.assert_close(product, torch.stack(rows).sum(0))
        assert around.loss == pytest.approx(sum(losses) / 10)
        assert around.alpha == 0.5  # 1 / m
        weights.replace(0.5 * weights.vector())


def test_distilled_rows_bring_their_own_first_order_term() -> None:
    """It is zero at the dense weights, and no loss was computed; each stage has its own."""
    found, model = curvature(method="chita++", loss="distill", samples=10)
    weights = Weights(model)
    dense = found.at(weights.vector())
    assert dense.loss is None and isinstance(dense.alpha, torch.Tensor)
    assert dense.alpha.shape == (10,) and float(dense.alpha.abs().max()) < 1e-9
    weights.replace(0.5 * weights.vector())
    moved = found.at(weights.vector())
    assert isinstance(moved.alpha, torch.Tensor) and float(moved.alpha.min()) > 0
    assert float(dense.alpha.abs().max()) < 1e-9  # the first one is still what it was


def test_without_curvature_there_are_no_rows() -> None:
    found, model = curvature(method="magnitude")
    around = found.at(Weights(model).vector())
    assert around.matrix.n == 0 and around.loss is None


def test_inputs_of_layers_come_with_the_loss() -> None:
    found, model = curvature(method="l-obs")
    x, t = points(24)
    around = found.at(Weights(model).vector())
    with torch.no_grad():
        assert around.loss == pytest.approx(functional.cross_entropy(model(x), t).item())
