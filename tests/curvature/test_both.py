"""Gradients and inputs together: few rows of A, and the sum of both for a layer."""

from __future__ import annotations

import pytest
import torch

from chita.curvature import both
from chita.curvature.both import InputsAndGradients, with_inputs
from chita.curvature.fisher import Fisher
from chita.curvature.source import LocalModel
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.constraints.constraint import ANY_SUPPORT
from chita.solver.layer_wise.gradient_part import GradientPart
from chita.solver.layer_wise.layer import Layer
from chita.solver.matrix.in_memory import HeldMatrix
from tests.curvature.test_source import sampled
from tests.solver.layer_wise.layers import correlated_moment, normal
from tests.support.pruning import cut, points, tiny


@pytest.mark.parametrize(("rows", "most", "found"), [(12, 64, 12), (12, 5, 4), (10, 4, 3)])
def test_mini_batches_share_rows(
    rows: int, most: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row i is the mean of adjacent rows of the Fisher matrix, and the stream does not move."""
    monkeypatch.setattr(both, "MOST_ROWS", most)
    given, each = sampled(rows), rows // found
    w0 = given.weights.vector()
    assert InputsAndGradients.matrix_rows(rows, 72) == found
    local = InputsAndGradients(given).at(w0)
    again = InputsAndGradients(given).at(w0)
    assert torch.equal(local.matrix.whole(), again.matrix.whole())
    single = Fisher(given).at(w0).matrix.whole()[:, : found * each]
    means = single.view(72, found, each).mean(2)
    torch.testing.assert_close(local.matrix.whole(), means)
    assert local.sample_gradients == 2 * found * each


def test_large_networks_have_fewer_rows_but_not_too_few() -> None:
    rows = InputsAndGradients.matrix_rows
    assert rows(1000, 10**6) == 62 and rows(64, 10**6) == 64
    assert rows(64, 30 * 10**6) == 32
    assert rows(64, 10**10) == 16


def test_later_stages_use_later_samples() -> None:
    given = sampled(4)
    source, w0 = InputsAndGradients(given), given.weights.vector()
    first = source.at(w0).matrix.whole()
    given.stream.skip(8)
    model = tiny()
    stream = SampleStream(tuple(cut(points(24), 24)))
    stream.skip(8)
    expected = type(given)(model, Weights(model), stream, 4, 2)
    later = source.at(w0).matrix.whole()
    torch.testing.assert_close(later, Fisher(expected).at(w0).matrix.whole())
    assert not torch.equal(first, later)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_the_sum_has_both_parts_in_one_scale(share: float) -> None:
    """The second derivatives are t M / m + (1 - t) A^T A / f + lambda, over all weights."""
    moment, columns, w0 = correlated_moment(0, 5, 2), normal(1, 2 * 3 * 5, 4), normal(2, 30)
    local = with_inputs(LocalModel(HeldMatrix(columns), alpha=0.5), moment, w0, share)
    layer = Layer.build(
        w0,
        local.moments[0],
        lam=0.1,
        k=10,
        constraint=ANY_SUPPORT,
        gradients=GradientPart(local.matrix.whole().view(2, 3, 5, 4), 0 * columns[0]),
    )
    inputs = torch.block_diag(*(moment[g] for g in range(2) for _ in range(3)))
    m, f = inputs.diagonal().mean(), columns.square().sum(1).mean()
    expected = share * inputs / m + (1 - share) * columns @ columns.mT / f
    expected += 0.1 * torch.eye(30, dtype=torch.float64)
    basis = torch.eye(30, dtype=torch.float64).view(30, 2, 3, 5)
    found = torch.stack([layer.gradient(w + layer.w0).flatten() for w in basis])
    torch.testing.assert_close(found, expected)
    assert isinstance(local.alpha, torch.Tensor)  # the first-order term has the scale of A
    torch.testing.assert_close(local.alpha.double(), 0.5 * ((1 - share) / f).sqrt())


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_inputs_alone_are_left_as_they_are(share: float) -> None:
    """At t = 1, and where no gradient reaches the layer."""
    moment, w0 = correlated_moment(0, 5), normal(2, 15)
    columns = normal(1, 15, 4) * (share == 1)
    local = with_inputs(LocalModel(HeldMatrix(columns), alpha=0.5), moment, w0, share)
    assert local.matrix.n == 0 and local.moments[0] is moment


def test_weights_of_dead_inputs_have_no_gradients() -> None:
    moment, w0 = correlated_moment(0, 5), normal(2, 15)
    moment[0, 2] = moment[0, :, 2] = 0.0
    local = with_inputs(LocalModel(HeldMatrix(normal(1, 15, 4))), moment, w0, 0.5)
    columns = local.matrix.whole().view(3, 5, 4)
    assert not columns[:, 2].any() and bool(columns[:, [0, 1, 3, 4]].all())
