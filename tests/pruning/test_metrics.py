"""What is large in each metric, from its definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from chita.model.layers import Axes
from chita.model.weight_scales import OF_WEIGHTS
from chita.pruning.stage_problem import FLOOR, Shape, metric_scale
from chita.solver.dead_columns import column_sizes
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.matrix.scaled import ScaledMatrix
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.solve import ALGORITHMS, solve_problem
from tests.support.pruning import numbers, points, seeded, tiny
from tests.support.pruning import prune_quietly as prune

SHAPE = Shape((Axes(1, 1, 4, 6, 1), Axes(1, 1, 5, 2, 3)))  # channels of six
P, N = 54, 12
ALL = slice(0, P)


def scale_of(name: str, matrix: GradientMatrix, w0: Tensor, columns: slice = ALL) -> Tensor:
    return metric_scale(name, matrix, w0, shape=SHAPE, columns=columns)


def example(seed: int = 0) -> tuple[HeldMatrix, Tensor]:
    return HeldMatrix(numbers(P, N, seed=seed)), numbers(P, seed=seed + 100)


def channels(vector: Tensor) -> list[Tensor]:
    """(p,) as the channels of all layers."""
    return [channel for layer in vector.split([24, 30]) for channel in layer.split(6)]


@pytest.mark.parametrize("name", [*OF_WEIGHTS, "fisher"])
def test_scales_are_positive_and_a_rank_has_its_own(name: str) -> None:
    matrix, w0 = example()
    scale = scale_of(name, matrix, w0)
    assert scale.shape == (P,) and bool((scale > 0).all() and scale.isfinite().all())
    if name != "fisher":  # whose diagonal the ranks gather: test_prune_on_ranks.py
        part = slice(20, 50)
        own = HeldMatrix(matrix.whole()[part])
        assert torch.equal(scale_of(name, own, w0, part), scale[part])


def test_the_square_in_the_fisher_metric_is_twice_the_saliency_of_obd() -> None:
    """Up to a floor under the diagonal, of a hundredth of its mean over the channel."""
    matrix, w0 = example()
    diagonal = matrix.whole().square().mean(1)
    saliency = diagonal * w0.square() / 2
    found = (scale_of("fisher", matrix, w0) * w0).square() / 2
    means = torch.cat([channel.mean().expand(6) for channel in channels(diagonal)])
    torch.testing.assert_close(found, saliency + FLOOR * means * w0.square() / 2, rtol=1e-5, atol=0)
    assert torch.equal(column_sizes(matrix).squares, matrix.whole().square().sum(1))


def test_layers_and_channels_have_a_mean_square_of_one() -> None:
    _, w0 = example()
    by_layer, by_channel = (scale_of(name, *example()) * w0 for name in ("layer", "channel"))
    for layer in by_layer.split([24, 30]):
        assert layer.square().mean() == pytest.approx(1.0)
    for channel in channels(by_channel):
        assert channel.square().mean() == pytest.approx(1.0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_lamp_by_its_definition(seed: int, ties: bool) -> None:
    """w_i^2 over the sum of the squares that are no smaller, in the layer."""
    _, w0 = example(seed)
    if ties:
        w0 = w0.round()
    found = (scale_of("lamp", HeldMatrix(numbers(P, N)), w0) * w0).square()
    for layer, scores in zip(w0.split([24, 30]), found.split([24, 30]), strict=True):
        squares = layer.square()
        order = sorted(range(len(layer)), key=lambda i: -float(squares[i]))  # a tie: the first
        for place, i in enumerate(order):
            if squares[i]:
                truth = squares[i] / squares[order[: place + 1]].sum()
                assert scores[i] == pytest.approx(float(truth))
            else:
                assert scores[i] == 0


@pytest.mark.parametrize("name", [*OF_WEIGHTS, "fisher"])
def test_layers_that_are_zero_or_unreached_are_finite(name: str) -> None:
    matrix, w0 = example()
    stored = matrix.whole().clone()
    stored[:24], w0[:24] = 0.0, 0.0
    scale = scale_of(name, HeldMatrix(stored), w0)
    assert bool(scale.isfinite().all() and (scale > 0).all())


def solution(matrix: GradientMatrix, w0: Tensor, metric: str) -> tuple[Tensor, Tensor]:
    """The support and the weights of a solve in a metric."""
    scale = torch.ones_like(w0) if metric == "plain" else scale_of(metric, matrix, w0)
    problem = Problem.build(ScaledMatrix(matrix, scale), w0 * scale, lam=0.1, alpha=0.5)
    found = solve_problem(problem, 20, ALGORITHMS["bso"], options=Options(iterations=5))
    return found.support, found.w / scale


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(-3, 3))
def test_a_rescaled_network_is_solved_the_same(seed: int, exponent: float) -> None:
    """A layer times c and the next over c: weights move with it, gradients against it.

    The Fisher metric does not notice, while the plain one keeps the large weights.
    """
    matrix, w0 = example(seed)
    c = torch.ones(P, dtype=torch.float64)
    c[:24], c[24:] = 10**exponent, 10**-exponent
    rescaled = HeldMatrix(matrix.whole() / c[:, None])
    support, w = solution(matrix, w0, "fisher")
    other, moved = solution(rescaled, w0 * c, "fisher")
    assert torch.equal(support, other)
    torch.testing.assert_close(moved / c, w, rtol=1e-6, atol=1e-9)


def test_the_plain_metric_does_notice() -> None:
    matrix, w0 = example()
    c = torch.ones(P, dtype=torch.float64)
    c[:24], c[24:] = 1000, 1 / 1000
    rescaled = HeldMatrix(matrix.whole() / c[:, None])
    assert not torch.equal(solution(matrix, w0, "plain")[0], solution(rescaled, w0 * c, "plain")[0])


OUTPUTS_SECOND = {
    "transformers": (lambda: nn.Sequential(Conv1D(3, 6), nn.ReLU(), nn.Linear(3, 3)), 1),
    "transposed": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (3, 2)), nn.ConvTranspose1d(3, 4, 2), nn.Flatten(), nn.Linear(12, 3)
        ),
        3,
    ),
}


@pytest.mark.parametrize("kind", OUTPUTS_SECOND)
@pytest.mark.parametrize("metric", ["channel", "fisher"])
def test_a_rescaled_output_is_pruned_the_same(kind: str, metric: str) -> None:
    """Also where the weights of an output do not lie together; the next layer undoes it."""
    build, positions = OUTPUTS_SECOND[kind]
    masks = []
    for factor in (1.0, 8.0):
        model = seeded(build).double()
        layer = next(m for m in model if isinstance(m, (Conv1D, nn.ConvTranspose1d)))
        with torch.no_grad():
            layer.weight[:, 0] *= factor
            layer.bias[0] *= factor
            model[-1].weight[:, :positions] /= factor
        names = [f"{list(model).index(layer)}.weight"]
        result = prune(
            model, [points(40)], sparsity=0.5, metric=metric, include=names, recover=False
        )
        masks.append(result.masks[names[0]])
    assert torch.equal(*masks)


def test_a_scalar_is_pruned_with_the_rest() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.scale = tiny(), nn.Parameter(torch.tensor(2.0).double())

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * self.network(x)

    for method, metric in (("magnitude", None), ("chita++", "channel"), ("auto", None)):
        model = Scaled()
        result = prune(
            model,
            [points(40)],
            method=method,
            metric=metric,
            include="*",
            ridge="auto",
            recover=False,
        )
        assert result.masks["scale"].shape == () and result.nonzeros == (72 + 11 + 1) // 4


def test_a_layer_that_no_sample_reaches_cannot_move_far() -> None:
    """Its weights move a hundred times their size where others move by theirs, and no further."""
    matrix, w0 = example()
    columns = matrix.whole().clone()
    columns[24:] *= 1e-30
    w0[24:] *= 1e-3
    scale = scale_of("fisher", HeldMatrix(columns), w0)
    sizes = (scale * w0)[:24].square().mean().sqrt(), (scale * w0)[24:].square().mean().sqrt()
    assert 0.001 < sizes[1] / sizes[0] < 0.1


@pytest.mark.parametrize("exponent", [-90, -70, 60, 90])
def test_the_fisher_metric_of_a_matrix_whose_squares_leave_float32(exponent: int) -> None:
    matrix, w0 = example()
    stored, factor = matrix.whole().float(), 2.0**exponent
    plain = scale_of("fisher", HeldMatrix(stored), w0)
    scaled = scale_of("fisher", HeldMatrix(factor * stored), w0)
    torch.testing.assert_close(scaled / factor, plain)
