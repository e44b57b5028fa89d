"""method="auto" from end to end: what it chooses, what it says of it, the floor and the repair."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita import ChitaError, PruneResult
from chita.bench.any_specimens import MLPNET_PAIRS
from chita.bench.rescale import rescale
from chita.evaluate import accuracy
from chita.floor import CEILING
from chita.stage_path import CLOSE

from .pruning import (
    Again,
    Watch,
    cut,
    digits,
    mlpnet,
    numbers,
    points,
    snapshot,
    tiny,
    unseen_digits,
)

Data = tuple[Tensor, Tensor]


def prune(model: nn.Module, batches: Any, **keywords: Any) -> PruneResult:
    return chita.prune(model, batches, **{"stages": 5, "progress": False, **keywords})


def loss_of(model: nn.Module, data: Data) -> float:
    with torch.no_grad():
        return functional.cross_entropy(model.eval()(data[0]), data[1]).item()


def accuracy_of(model: nn.Module, data: Data) -> float:
    with torch.no_grad():
        return 100 * (model.eval()(data[0]).argmax(1) == data[1]).double().mean().item()


def fit(model: nn.Module, data: Data) -> None:
    """Train it until every weight counts."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        functional.cross_entropy(model(data[0]), data[1]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def test_it_is_the_default() -> None:
    one, other = tiny(), tiny()
    result = prune(one, cut(points(40), 8), sparsity=0.8)
    prune(other, cut(points(40), 8), sparsity=0.8, method="auto")
    assert result.config.method == "auto"
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_every_stage_says_what_was_chosen_and_why() -> None:
    result = prune(tiny(), cut(points(40), 8), sparsity=0.8)
    found = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [row["sparsity"] for row in found["stages"]] == [row.sparsity for row in result.stages]
    assert len(result.stages) == 5
    for row in found["stages"]:
        losses = [trial["loss"] for trial in row["candidates"]]
        chosen = row["candidates"][losses.index(min(losses))]
        assert row["held_out_loss"] == chosen["loss"]
        form = ("metric", "block_size", "first_order", "ridge", "step")
        assert [row[name] for name in form] == [chosen[name] for name in form]
        masks = [trial["loss"] for trial in row["candidates"] if trial["step"] == 0]
        assert masks and row["held_out_loss"] <= min(masks)  # never worse than the mask alone
        assert f"{row['metric']} metric" in row["why"]
        assert f"the least of {len(losses)}; the mask alone has" in row["why"]
        assert row["accepted"] and row["accuracy"] is None


def test_the_sparsity_is_met_to_the_weight() -> None:
    """With so few samples that the mask alone wins a stage after one that pruned other weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = torch.randn(400, 20)[:40]
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
    result = prune(model, [(x, x[:, :5].argmax(1))], sparsity=0.5, stages=2)
    assert result.stages[-1].step == 0
    assert result.sparsity == 0.5
    for name, mask in result.masks.items():
        assert torch.equal(mask, model.get_parameter(name) != 0)


def test_the_guards_time_is_counted() -> None:
    result = prune(tiny(), cut(points(40), 8), sparsity=0.8)
    seconds = result.seconds
    assert all(row.guard_seconds > 0 and row.solve_seconds > 0 for row in result.stages)
    assert seconds.guard == pytest.approx(sum(row.guard_seconds for row in result.stages))
    assert seconds.gradients + seconds.solve + seconds.guard <= seconds.total


def test_the_held_out_loss_is_true() -> None:
    """Of 40 samples the first eight are held out; what the repair gains comes on top."""
    x, t = points(40)
    model = tiny()
    result = prune(model, Again([(x, t)]), sparsity=0.8)
    expected = result.stages[-1].held_out_loss
    for row in result.repairs:
        assert row.loss_before == pytest.approx(expected)
        assert row.kept == (row.loss_after < row.loss_before)
        expected = row.loss_after if row.kept else row.loss_before
    assert loss_of(model, (x[:8], t[:8])) == pytest.approx(expected)


def test_a_given_form_is_kept_to() -> None:
    fixed: dict[str, Any] = {"metric": "lamp", "first_order": False, "block_size": 20, "ridge": 0.1}
    result = prune(tiny(), cut(points(40), 8), sparsity=0.8, **fixed)
    for row in result.stages:
        assert {name: getattr(row, name) for name in fixed} == fixed
        assert len(row.candidates) == 3  # the whole way, half of it, none


def test_a_schedule_that_is_asked_for_is_kept() -> None:
    result = prune(tiny(), cut(points(40), 8), sparsity=0.8, schedule="linear", start=0.4)
    assert [row.sparsity for row in result.stages] == pytest.approx([0.4, 0.5, 0.6, 0.7, 0.8])


def pruned_accuracy(pairs: Sequence[tuple[str, str]], method: str, seed: int) -> float:
    """Of MLPNet at 95 %, with pairs of its layers rescaled before."""
    model = mlpnet()
    rescale(model, pairs)
    keywords: dict[str, Any] = {"samples": 300, "batch": 8, "stages": 8, "start": 0.6}
    prune(model, digits(3000), sparsity=0.95, method=method, seed=seed, **keywords)
    return accuracy(model, unseen_digits())


def test_a_rescaled_network_loses_at_most_a_point() -> None:
    """In the mean of two seeds, since one differs from the next by a point."""
    plain, rescaled = (
        sum(pruned_accuracy(pairs, "auto", seed) for seed in (0, 1)) / 2
        for pairs in ((), MLPNET_PAIRS)
    )
    assert rescaled > plain - 1
    assert pruned_accuracy(MLPNET_PAIRS, "chita++", 0) < 50  # which trusts the sizes of weights


def test_without_labels() -> None:
    """The images alone are as good as with their labels, and much better than magnitude."""
    found = {}
    for name in ("distill", "labels", "magnitude"):
        model, data = mlpnet(), digits(1000)
        batches: Any = [images for images, _ in data] if name == "distill" else data
        loss = "distill" if name == "distill" else None
        method = "magnitude" if name == "magnitude" else "auto"
        keywords: dict[str, Any] = {"samples": 200, "stages": 6, "start": 0.6}
        prune(model, batches, sparsity=0.95, loss=loss, method=method, **keywords)
        found[name] = accuracy(model, unseen_digits())
    assert found["distill"] > found["labels"] - 2
    assert found["distill"] > found["magnitude"] + 5


HELD = 150  # of 600 digits, with 100 rows of four


def first_digits() -> tuple[Again, Data]:
    """Digits in their order, and those of them that are held out."""
    pairs = digits(600)
    x, t = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    return Again(pairs), (x[:HELD], t[:HELD])


def check_search(result: PruneResult, stages: int) -> None:
    """Accepted stages rise, refused ones fall, and they meet or the stages are spent."""
    accepted = [row.sparsity for row in result.stages if row.accepted]
    refused = [row.sparsity for row in result.stages if not row.accepted]
    assert accepted and refused and accepted == sorted(accepted)
    assert accepted[-1] < min(refused) <= CEILING
    spent = len(result.stages) == stages
    assert spent or min(refused) - accepted[-1] <= CLOSE * (1 - min(refused))
    assert result.sparsity == pytest.approx(accepted[-1], abs=1e-3)
    assert result.last is not None and result.last.sparsity == accepted[-1]


@pytest.mark.parametrize("most", [0.02, 0.3])
def test_the_sparsest_network_within_a_loss(most: float) -> None:
    batches, held = first_digits()
    model = mlpnet()
    dense = loss_of(model, held)
    keywords: dict[str, Any] = {"samples": 100, "batch": 4, "stages": 12}
    result = prune(model, batches, max_loss_increase=most, **keywords)
    assert loss_of(model, held) <= dense + most
    check_search(result, 12)
    assert 0.5 < result.sparsity < CEILING
    over = [row.held_out_loss for row in result.stages if not row.accepted]
    assert all(loss is not None and loss > dense + most for loss in over)


@pytest.mark.parametrize(
    ("limits", "most"),
    [({"pattern": "2:4", "exclude": "0.*"}, 0.5), ({"at_most": {"0.weight": 0.5}}, 1 - 24 / 72)],
)
def test_a_search_ends_where_a_pattern_or_a_limit_does(limits: dict[str, Any], most: float) -> None:
    """Nothing is ever too bad here."""
    result = prune(tiny(), cut(points(40), 8), max_loss_increase=100.0, **limits)
    assert all(row.accepted for row in result.stages)
    assert result.sparsity == pytest.approx(most)


def test_a_schedule_ends_where_the_search_begins() -> None:
    batches, _ = first_digits()
    keywords: dict[str, Any] = {"samples": 50, "batch": 4, "stages": 6, "schedule": "polynomial"}
    result = prune(mlpnet(), batches, max_loss_increase=0.005, **keywords)
    check_search(result, 6)
    planned = result.config.plan()
    first = next(number for number, row in enumerate(result.stages) if not row.accepted)
    assert [row.sparsity for row in result.stages[: first + 1]] == planned[: first + 1]
    assert result.stages[first + 1].sparsity == sum(planned[first - 1 : first + 1]) / 2


def test_the_sparsest_network_of_an_accuracy() -> None:
    batches, held = first_digits()
    model = mlpnet()
    keywords: dict[str, Any] = {"samples": 100, "batch": 4, "stages": 12}
    result = prune(model, batches, min_accuracy=90, **keywords)
    check_search(result, 12)
    for row in result.stages:
        assert row.accuracy is not None and row.accepted == (row.accuracy >= 90)
    assert accuracy_of(model, held) >= 90


def test_a_floor_that_nothing_keeps_leaves_the_network_dense(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, (x, t) = tiny(), points(40)
    t = model(x).argmax(1)  # all are right: 100 % cannot be surpassed
    before = snapshot(model)
    result = prune(model, Again([(x, 2 - t)]), sparsity=0.9, min_accuracy=100.0)
    assert not any(row.accepted for row in result.stages)
    assert "no stage kept to min_accuracy=100.0: the network stays dense" in caplog.text
    assert result.last is None and result.objective is None
    assert result.sparsity == 0 and all(bool(mask.all()) for mask in result.masks.values())
    assert torch.equal(snapshot(model)["0.weight"], before["0.weight"])
    assert json.dumps(result.to_dict(), allow_nan=False)


def test_a_finished_search_makes_way(tmp_path: Any) -> None:
    """It may end before all stages are used, and is no interrupted run then."""
    keywords: dict[str, Any] = {"max_loss_increase": 0.01, "stages": 30, "checkpoints": tmp_path}
    data, trained = cut(points(40), 8), tiny()
    fit(trained, points(40))
    first = prune(copy.deepcopy(trained), data, **keywords)
    assert len(first.stages) < 30
    again = prune(copy.deepcopy(trained), data, resume=True, **keywords)
    assert again.stages == first.stages
    assert prune(trained, data, seed=1, **keywords).stages != first.stages


def test_a_floor_needs_auto_and_classes() -> None:
    data = cut(points(40), 8)
    with pytest.raises(ChitaError, match=r"sparsity must be .* got None; it may be left out where"):
        chita.prune(tiny(), data)
    for name in ("max_loss_increase", "min_accuracy"):
        with pytest.raises(ChitaError, match=f"{name} is for method='auto', got method='obd'"):
            prune(tiny(), data, method="obd", **{name: 10})
    with pytest.raises(ChitaError, match="max_loss_increase must be a finite number of at least 0"):
        prune(tiny(), data, max_loss_increase=-1)
    for slip in (-1, 0.95, 101, float("nan")):
        with pytest.raises(ChitaError, match="min_accuracy must be in percent"):
            prune(tiny(), data, min_accuracy=slip)


def test_a_floor_on_the_way_to_a_pattern_is_told(caplog: pytest.LogCaptureFixture) -> None:
    trained = tiny()
    fit(trained, points(40))
    limits: dict[str, Any] = {"exclude": "0.*", "max_loss_increase": 0.0, "stages": 3}
    result = prune(trained, cut(points(40), 8), sparsity="1:4", ridge=1e3, **limits)
    assert 0 < result.sparsity < 0.75
    assert "on the way to 1:4: not every group is there" in caplog.text


def test_a_network_without_classes_is_refused_before_any_gradient() -> None:
    """One output, and a loss of its own: the largest of one is always the first."""
    x, t = points(40)
    model = nn.Sequential(*tiny(), nn.Linear(3, 1).double())
    watch = Watch(model)

    def binary(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(outputs, targets)

    with pytest.raises(ChitaError, match=r"min_accuracy cannot be told: .* shape \(8, 1\)"):
        prune(model, cut((x, (t[:, None] > 0).double()), 8), loss=binary, min_accuracy=50.0)
    assert not any(watch.with_gradients)


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
    result = prune(model, Again([(x, t)]), sparsity=0.5)
    row = next(row for row in result.repairs if row.repair == "batch norm")
    moved = not torch.equal(snapshot(model)["1.running_mean"], before["1.running_mean"])
    assert row.kept == moved == (row.loss_after < row.loss_before) == stale


def test_one_sample_is_too_few_to_repair_batch_norm_and_costs_no_run() -> None:
    result = prune(batch_normed(False), cut(points(40), 1), sparsity=0.5, samples=1, batch=1)
    assert result.sparsity > 0.45
    assert [row.repair for row in result.repairs] == ["biases"]


def test_a_repair_does_not_break_the_floor() -> None:
    """Batch norm's right statistics would halve the outputs, which this loss is all about."""
    model, (x, _) = batch_normed(False), points(200)
    model[1].running_mean += numbers(8, seed=3)
    model[1].running_var *= 0.1
    with torch.no_grad():
        t = model.eval()(x).argmax(1)

    def size(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().mean()

    result = prune(model, Again([(x, t)]), sparsity=0.5, loss=size, min_accuracy=75.0, stages=6)
    row = next(row for row in result.repairs if row.repair == "batch norm")
    assert row.loss_after < row.loss_before and not row.kept
    assert result.last is not None and result.last.accuracy == accuracy_of(model, (x[:40], t[:40]))
    assert accuracy_of(model, (x[:40], t[:40])) >= 75
