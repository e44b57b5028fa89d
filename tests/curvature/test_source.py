"""The local model that each curvature source builds at the weights of a stage."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from chita.curvature import (
    CurvatureSource,
    Fisher,
    InputsAndGradients,
    LayerInputs,
    NoCurvature,
    SampledModel,
)
from chita.model.distill import distilled
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from tests.support.pruning import cut, points, tiny


def sampled(rows: int, **given: Any) -> SampledModel:
    """The tiny network on 24 samples, two in a row, in their order."""
    model = tiny()
    stream = SampleStream(tuple(cut(points(24), 24)))
    return SampledModel(model, Weights(model), stream, rows, 2, **given)


def test_rows_are_gradients_at_the_weights_and_the_next_samples_follow() -> None:
    """Ten rows a stage of the twelve available: the second stage starts again from the front."""
    given = sampled(10)
    source, weights, (x, t) = Fisher(given), given.weights, points(24)
    places = torch.arange(40) % 24
    for stage in range(2):
        local = source.at(weights.vector())
        rows, losses = [], []
        for pair in places[20 * stage : 20 * (stage + 1)].view(10, 2):
            loss = functional.cross_entropy(given.model(x[pair]), t[pair])
            parameters = [weight.parameter for weight in weights]
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
            losses.append(loss.item())
        product = local.matrix.adjoint(torch.ones(10, dtype=torch.float64))
        torch.testing.assert_close(product, torch.stack(rows).sum(0))
        assert local.loss == pytest.approx(sum(losses) / 10)
        assert local.alpha == 0.5  # 1 / m
        assert local.sample_gradients == 20 and local.moments == ()
        weights.replace(0.5 * weights.vector())


def test_a_later_stage_runs_fewer_samples_alone() -> None:
    """That samples do not interact is checked once for each shape, not in every stage."""
    given = sampled(10)
    source, passes = Fisher(given), list[int]()
    given.model.register_forward_hook(lambda *_: passes.append(len(passes)))
    counts = []
    for _ in range(2):
        passes.clear()
        source.at(given.weights.vector())
        counts.append(len(passes))
    assert counts[1] < counts[0]


def test_distilled_rows_have_their_own_first_order_term() -> None:
    """It is zero at the dense weights, and the loss is not computed; each stage has its own."""
    model = tiny()
    stream, dense = distilled(model, tuple(cut(points(24), 24)), "distill", 0)
    weights = Weights(model)
    source = Fisher(SampledModel(model, weights, stream, 10, 2, row_loss=dense.row, distilled=True))
    first = source.at(weights.vector())
    assert first.loss is None and isinstance(first.alpha, torch.Tensor)
    assert first.alpha.shape == (10,) and float(first.alpha.abs().max()) < 1e-9
    weights.replace(0.5 * weights.vector())
    moved = source.at(weights.vector())
    assert isinstance(moved.alpha, torch.Tensor) and float(moved.alpha.min()) > 0
    assert float(first.alpha.abs().max()) < 1e-9  # the first local model is unchanged


def test_without_curvature_no_sample_is_read() -> None:
    model = tiny()
    given = SampledModel(model, Weights(model), SampleStream(()), 0, 1)
    local = NoCurvature(given).at(given.weights.vector())
    assert local.matrix.n == 0 and local.matrix.p == 72 and local.loss is None
    assert local.moments == ()


def test_layer_inputs_are_moments_and_the_loss_without_rows() -> None:
    given, (x, t) = sampled(12), points(24)
    local = LayerInputs(given).at(given.weights.vector())
    assert local.matrix.n == 0 and local.sample_gradients == 0
    torch.testing.assert_close(local.moments[0], (x.t() @ x / 24)[None])
    with torch.no_grad():
        assert local.loss == pytest.approx(functional.cross_entropy(given.model(x), t).item())


@pytest.mark.parametrize(
    ("source", "reads_samples", "uses_gradients"),
    [
        (NoCurvature, False, False),
        (Fisher, True, True),
        (LayerInputs, True, False),
        (InputsAndGradients, True, True),
    ],
)
def test_what_each_source_needs(
    source: type[CurvatureSource], reads_samples: bool, uses_gradients: bool
) -> None:
    assert (source.reads_samples, source.uses_gradients) == (reads_samples, uses_gradients)
