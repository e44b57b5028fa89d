"""The problem that a stage of pruning solves, and the bits that a seed determines."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.pruning.calibration import divide_samples
from chita.pruning.config import PruneConfig
from tests.curvature.truth import brute_force
from tests.support.pruning import (
    METHODS,
    Again,
    cut,
    digits,
    mlpnet,
    points,
    tiny,
)
from tests.support.pruning import (
    prune_quietly as prune,
)


class OwnLoss(nn.Module):
    """Gives its own loss, whose gradients are taken row by row."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor, labels: Tensor) -> SimpleNamespace:
        return SimpleNamespace(loss=functional.cross_entropy(self.network(inputs), labels))


@pytest.mark.parametrize("first_order", [True, False])
@pytest.mark.parametrize(("block_size", "block_sweeps"), [(None, 0), (20, 0), (20, 2)])
@pytest.mark.parametrize(("method", "solver"), [("chita-bso", "bso"), ("chita-cd", "cd")])
@pytest.mark.parametrize("batch", [1, 4])
def test_one_stage_is_the_optimiser_on_plain_gradients(
    first_order: bool,
    block_size: int | None,
    block_sweeps: int,
    method: str,
    solver: Any,
    batch: int,
) -> None:
    model, (x, t) = tiny(), points(24)
    weights = Weights(model)
    w0 = weights.vector()
    A, _ = brute_force(model, weights, x, t, batch)
    truth = chita.solve(
        A.t().contiguous().t(),  # laid out as prune does, to the same bits
        w0,
        18,
        lam=0.03,
        alpha=1 / batch if first_order else 0.0,
        method=solver,
        block_size=block_size,
        block_sweeps=block_sweeps,
        layers=[48, 24],
        iterations=20,
    )
    result = prune(
        OwnLoss(model),
        Again([{"inputs": x, "labels": t}]),
        method=method,
        batch=batch,
        ridge=0.03,
        first_order=first_order,
        block_size=block_size,
        block_sweeps=block_sweeps,
        iterations=20,
        recover=False,
    )
    assert torch.equal(weights.vector(), truth.w)
    assert not torch.equal(truth.w, w0)
    assert result.objective == truth.objective
    assert result.stages[0].iterations == truth.iterations
    assert result.samples == 24 // batch


def test_auto_takes_the_ridge_of_the_least_held_out_loss() -> None:
    """On the samples that choose; the loss that is told comes from others."""
    keywords: dict[str, Any] = {"method": "chita-bso", "batch": 1, "samples": 20}
    config = PruneConfig(sparsity=0.75, ridge="auto", **keywords, recover=False)
    found = divide_samples(SampleStream(Again([points(40)]), config.seed), config)
    choosing, measuring, rest = (
        next(SampleStream(part).take(size, size)).content
        for part, size in (
            (found.held_out, 10),
            (found.measured, 10),
            (list(found.stream.take(20, 20)), 20),
        )
    )

    def loss_of(model: nn.Module, samples: Any) -> float:
        with torch.no_grad():
            return functional.cross_entropy(model(*samples[0]), samples[1]).item()

    def by_hand(ridge: float) -> nn.Module:
        model = tiny()
        prune(model, Again([(rest[0][0], rest[1])]), ridge=ridge, **{"recover": False, **keywords})
        return model

    grid = [10 ** (i / 2) for i in range(-10, 7)]
    best = min(grid, key=lambda ridge: loss_of(by_hand(ridge), choosing))
    assert grid[0] < best < grid[-1]
    model, truth = tiny(), by_hand(best)
    result = prune(model, Again([points(40)]), ridge="auto", **{"recover": False, **keywords})
    (row,) = result.stages
    assert row.ridge == pytest.approx(best)
    assert row.choice_loss == pytest.approx(loss_of(truth, choosing))
    assert row.held_out_loss == pytest.approx(loss_of(truth, measuring))
    assert (result.held_out_loss, result.held_out_error) == (row.held_out_loss, row.held_out_error)
    assert result.sample_gradients == 20
    torch.testing.assert_close(Weights(model).vector(), Weights(truth).vector())


@pytest.mark.slow
def test_a_seed_gives_the_same_bits_and_another_one_does_not() -> None:
    calibration = digits(400)
    vectors = []
    for seed in (0, 0, 1):
        model = mlpnet()
        prune(
            model,
            calibration,
            sparsity=0.9,
            samples=10,
            ridge="auto",
            stages=2,
            seed=seed,
            recover=False,
        )
        vectors.append(Weights(model).vector())
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])


@pytest.mark.parametrize("method", METHODS)
def test_the_global_generator_is_untouched(method: str) -> None:
    model = nn.Sequential(*tiny(), nn.Dropout(0.5)).double()
    before = torch.get_rng_state()
    prune(model, cut(points(24), 5), ridge="auto", method=method, recover=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_continuation_finds_better_weights_at_high_sparsity() -> None:
    calibration, objectives = digits(1600), []
    for continuation in (0, 20):
        result = prune(
            copy.deepcopy(mlpnet()),
            calibration,
            method="chita-bso",
            sparsity=0.98,
            batch=16,
            ridge=1e-3,
            continuation=continuation,
        )
        objectives.append(result.objective or 0.0)
    assert 0 < objectives[1] < objectives[0]
