"""method="auto" from end to end: what it chooses, what it says of it, and the repair."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chita.model.accuracy import accuracy
from chita.paper.robustness.rescale import rescale
from chita.paper.robustness.specimens import MLPNET_PAIRS
from chita.pruning.config import kept_weights
from chita.pruning.floor import accuracy_error
from tests.support.guarded import accuracy_of, held_out_parts, loss_of, prune
from tests.support.messages import says
from tests.support.pruning import (
    Again,
    cut,
    digits,
    mlpnet,
    numbers,
    points,
    snapshot,
    tiny,
    unseen_digits,
)


def test_it_is_the_default() -> None:
    one, other = tiny(), tiny()
    result = prune(one, cut(points(40), 8), sparsity=0.8, recover=False)
    prune(other, cut(points(40), 8), sparsity=0.8, method="auto", recover=False)
    assert result.config.method == "auto"
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_every_stage_says_what_was_chosen_and_why() -> None:
    result = prune(tiny(), cut(points(40), 8), sparsity=0.8, recover=False)
    found = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [row["sparsity"] for row in found["stages"]] == [row.sparsity for row in result.stages]
    assert len(result.stages) == 5
    for row in found["stages"]:
        form = ("metric", "block_size", "block_sweeps", "first_order")
        whole = [
            trial
            for trial in row["candidates"]
            if trial["step"] == 1 and all(trial[name] == row[name] for name in form)
        ]
        least = min(whole, key=lambda trial: trial["loss"])
        assert row["ridge"] == least["ridge"]  # the least mean; a step is taken only if sure
        chosen = [
            trial["loss"]
            for trial in row["candidates"]
            if all(trial[name] == row[name] for name in (*form, "ridge", "step"))
        ]
        assert chosen == [row["choice_loss"]] and row["choice_loss"] <= least["loss"]
        assert row["held_out_loss"] != row["choice_loss"] and row["held_out_error"] > 0
        assert any(trial["step"] == 0 for trial in row["candidates"])
        assert says(row["why"], row["metric"], len(row["candidates"]), "mask")
        assert row["accepted"] and row["accuracy"] is None


def test_the_sparsity_is_met_to_the_weight() -> None:
    """Where the mask alone wins a stage after one with another support: A has four rows, and the
    only sample that chooses has no spread."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        x = torch.randn(400, 20)[:100]
        model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
    few: dict[str, Any] = {"samples": 4, "batch": 1, "ridge": 1e-3, "first_order": True}
    result = prune(
        model,
        [(x, x[:, :5].argmax(1))],
        sparsity=0.8,
        start=0.3,
        stages=2,
        **{"recover": False, **few},
    )
    assert [row.step for row in result.stages] == [1, 0]
    assert result.nonzeros == result.stages[-1].kept == kept_weights(800, 0.8)
    for name, mask in result.masks.items():
        assert torch.equal(mask, model.get_parameter(name) != 0)


def test_the_time_for_held_out_losses_is_counted() -> None:
    result = prune(tiny(), cut(points(40), 8), sparsity=0.8, recover=False)
    seconds = result.seconds
    assert all(row.held_out_seconds > 0 and row.solve_seconds > 0 for row in result.stages)
    assert seconds.held_out == pytest.approx(sum(row.held_out_seconds for row in result.stages))
    assert seconds.gradients + seconds.solve + seconds.held_out <= seconds.total


@pytest.mark.parametrize(
    ("size", "count", "rows"),
    [(40, 1, {"batch": 1}), (100, 120, {"samples": 80, "batch": 100})],
)
def test_the_held_out_losses_are_true(size: int, count: int, rows: dict[str, Any]) -> None:
    """Of the network as it is returned, with what the repairs gain.

    Six samples choose what a stage does, and four measure it; of 2000 the halves take turns, and
    the loss is told on all.
    """
    batches, model = Again(cut(points(size * count), size)), tiny()
    result = prune(model, batches, sparsity=0.8, **{"recover": False, **rows})
    choosing, measured = held_out_parts(batches, sparsity=0.8, **rows)
    for row in result.stages:
        chosen_by = [trial["loss"] for trial in row.candidates]
        assert (row.choice_loss in chosen_by) == (len(choosing[0]) == 6)
    expected = result.stages[-1].choice_loss
    assert expected is not None
    for row in result.repairs:
        assert row.loss_before == pytest.approx(expected)
        assert row.loss_after < row.loss_before or not row.kept
        expected = row.loss_after if row.kept else row.loss_before
    assert loss_of(model, choosing) == pytest.approx(expected)
    assert loss_of(model, measured) == pytest.approx(result.held_out_loss)


def test_a_given_form_is_kept_to() -> None:
    fixed: dict[str, Any] = {"metric": "lamp", "first_order": False, "block_size": 20, "ridge": 0.1}
    result = prune(tiny(), cut(points(40), 8), sparsity=0.8, **{"recover": False, **fixed})
    for row in result.stages:
        assert {name: row.to_dict()[name] for name in fixed} == fixed
        assert len(row.candidates) == 3  # the whole way, half of it, none


def test_a_schedule_that_is_asked_for_is_kept() -> None:
    result = prune(
        tiny(), cut(points(40), 8), sparsity=0.8, schedule="linear", start=0.4, recover=False
    )
    assert [row.sparsity for row in result.stages] == pytest.approx([0.4, 0.5, 0.6, 0.7, 0.8])


def pruned_accuracy(pairs: Sequence[tuple[str, str]], method: str, seed: int) -> float:
    """Of MLPNet at 95 %, with pairs of its layers rescaled before."""
    model = mlpnet()
    rescale(model, pairs)
    keywords: dict[str, Any] = {"samples": 300, "batch": 8, "stages": 8, "start": 0.6}
    prune(
        model,
        digits(3000),
        sparsity=0.95,
        method=method,
        seed=seed,
        **{"recover": False, **keywords},
    )
    return accuracy(model, unseen_digits())


@pytest.mark.slow
def test_a_rescaled_network_loses_at_most_a_point() -> None:
    """In the mean of two seeds, since one differs from the next by a point."""
    plain, rescaled = (
        sum(pruned_accuracy(pairs, "auto", seed) for seed in (0, 1)) / 2
        for pairs in ((), MLPNET_PAIRS)
    )
    assert rescaled > plain - 1
    assert pruned_accuracy(MLPNET_PAIRS, "chita++", 0) < 50  # which trusts the sizes of weights


@pytest.mark.slow
def test_without_labels() -> None:
    """The images alone are as good as with their labels, and much better than magnitude."""
    found = {}
    for name in ("distill", "labels", "magnitude"):
        model, data = mlpnet(), digits(1000)
        batches: Any = [images for images, _ in data] if name == "distill" else data
        loss = "distill" if name == "distill" else None
        method = "magnitude" if name == "magnitude" else "auto"
        keywords: dict[str, Any] = {"samples": 200, "stages": 6, "start": 0.6}
        prune(
            model,
            batches,
            sparsity=0.95,
            loss=loss,
            method=method,
            **{"recover": False, **keywords},
        )
        found[name] = accuracy(model, unseen_digits())
    assert found["distill"] > found["labels"] - 2
    assert found["distill"] > found["magnitude"] + 5


def batch_normed(stale: bool) -> nn.Sequential:
    """With the statistics of its data, or with others."""
    first, _, last = tiny()
    norm = nn.BatchNorm1d(8)
    with torch.no_grad():
        hidden = nn.Sequential(first)(points(200)[0])
        norm.running_mean = hidden.mean(0) + 5.0 * stale
        norm.running_var = hidden.var(0)
    return nn.Sequential(first, norm, nn.ReLU(), last).double()


@pytest.mark.parametrize("stale", [False, True])
def test_batch_norm_is_repaired_where_that_helps(stale: bool) -> None:
    """The classes are those that the network with the right statistics finds."""
    x, _ = points(200)
    with torch.no_grad():
        t = batch_normed(False).eval()(x).argmax(1)
    model = batch_normed(stale)
    before = snapshot(model)
    result = prune(model, Again([(x, t)]), sparsity=0.5, recover=False)
    row = next(row for row in result.repairs if row.repair == "batch norm")
    moved = not torch.equal(snapshot(model)["1.running_mean"], before["1.running_mean"])
    assert row.kept == moved == (row.loss_after < row.loss_before) == stale


def test_one_sample_is_too_few_to_repair_batch_norm_and_costs_no_run() -> None:
    result = prune(
        batch_normed(False), cut(points(40), 1), sparsity=0.5, samples=1, batch=1, recover=False
    )
    assert result.sparsity > 0.45
    assert [row.repair for row in result.repairs] == ["biases"]


def test_a_repair_does_not_break_the_floor() -> None:
    """Batch norm's right statistics would shrink the outputs, which this loss is all about."""
    model, (x, _) = batch_normed(False), points(200)
    model[1].running_mean += numbers(8, seed=11)
    model[1].running_var *= 0.1
    with torch.no_grad():
        t = model.eval()(x).argmax(1)

    def size(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().mean()

    data, kept = Again([(x, t)]), []
    for floor in ({}, {"min_accuracy": 85.0}):
        pruned = copy.deepcopy(model)
        result = prune(
            pruned, data, sparsity=0.3, loss=size, stages=4, **{"recover": False, **floor}
        )
        row = next(row for row in result.repairs if row.repair == "batch norm")
        assert row.loss_after < row.loss_before / 2
        kept.append(row.kept)
    assert kept == [True, False]
    _, measured = held_out_parts(data, sparsity=0.3, min_accuracy=85.0)
    right = accuracy_of(pruned, measured)
    assert result.last is not None and result.last.accuracy == right
    assert right - accuracy_error(right, len(measured[0])) >= 85
