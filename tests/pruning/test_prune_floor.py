"""The sparsest network above a floor, from end to end."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita import ChitaError, PruneResult
from chita.model.weights import Weights
from chita.pruning.floor import CEILING, accuracy_error
from chita.pruning.schedule import CLOSE
from tests.support.guarded import Data, accuracy_of, fit, held_out_parts, loss_of, prune
from tests.support.messages import naming, says
from tests.support.pruning import (
    Again,
    Watch,
    cut,
    digits,
    mlpnet,
    points,
    snapshot,
    tiny,
)

pytestmark = pytest.mark.slow


ROWS: dict[str, Any] = {"samples": 100, "batch": 4}  # of 600 digits; 100 choose, 100 measure


def increases(watch: Watch, measured: Data) -> list[tuple[float, float]]:
    """The mean increase of the loss over the dense one, and its standard error over mini-batches,
    each time the model was measured; the first time it is dense."""
    x, t = measured
    losses = []
    for weights, inputs in zip(watch.weights, watch.inputs, strict=True):
        if torch.equal(inputs, x):
            model = mlpnet()
            Weights(model).assign(weights)
            with torch.no_grad():
                each = functional.cross_entropy(model.eval()(x), t, reduction="none")
            losses.append(each.double().view(-1, ROWS["batch"]).mean(1))
    above = [each - losses[0] for each in losses]
    return [(float(d.mean()), float(d.std() / len(d) ** 0.5)) for d in above]


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


@pytest.mark.slow
@pytest.mark.parametrize("most", [0.02, 0.3])
def test_the_sparsest_network_within_a_loss(most: float) -> None:
    """By one standard error, on samples that choose nothing."""
    batches, model = Again(digits(600)), mlpnet()
    _, measured = held_out_parts(batches, max_loss_increase=most, **ROWS)
    dense, watch = loss_of(model, measured), Watch(model)
    result = prune(model, batches, max_loss_increase=most, stages=12, **{"recover": False, **ROWS})
    check_search(result, 12)
    assert 0.3 < result.sparsity < CEILING
    _, *found = increases(watch, measured)
    for row, (increase, error) in zip(result.stages, found, strict=False):
        assert row.held_out_loss == pytest.approx(dense + increase, rel=1e-4)
        assert row.accepted == (increase + error <= most)
    assert result.held_out_loss == pytest.approx(loss_of(model, measured), rel=1e-4)
    assert sum(found[-1]) <= most


@pytest.mark.parametrize(
    ("limits", "most"),
    [({"pattern": "2:4", "exclude": "0.*"}, 0.5), ({"at_most": {"0.weight": 0.5}}, 1 - 24 / 72)],
)
def test_a_search_ends_where_a_pattern_or_a_limit_does(limits: dict[str, Any], most: float) -> None:
    """Nothing is ever too bad here."""
    result = prune(
        tiny(), cut(points(40), 8), max_loss_increase=100.0, **{"recover": False, **limits}
    )
    assert all(row.accepted for row in result.stages)
    assert result.sparsity == pytest.approx(most)


def test_a_schedule_ends_where_the_search_begins() -> None:
    batches = Again(digits(600))
    keywords: dict[str, Any] = {"samples": 50, "batch": 4, "stages": 6, "schedule": "polynomial"}
    result = prune(mlpnet(), batches, max_loss_increase=0.2, **{"recover": False, **keywords})
    check_search(result, 6)
    planned = result.config.plan()
    first = next(number for number, row in enumerate(result.stages) if not row.accepted)
    assert [row.sparsity for row in result.stages[: first + 1]] == planned[: first + 1]
    assert result.stages[first + 1].sparsity == sum(planned[first - 1 : first + 1]) / 2


def test_the_sparsest_network_of_an_accuracy() -> None:
    """By one standard error, on samples that choose nothing."""
    batches, model = Again(digits(600)), mlpnet()
    _, measured = held_out_parts(batches, min_accuracy=90, **ROWS)
    result = prune(model, batches, min_accuracy=90, stages=12, **{"recover": False, **ROWS})
    check_search(result, 12)
    for row in result.stages:
        assert row.accuracy is not None
        assert row.accepted == (row.accuracy - accuracy_error(row.accuracy, 100) >= 90)
    assert any(not row.accepted and (row.accuracy or 0) >= 90 for row in result.stages)
    accuracy = accuracy_of(model, measured)
    assert accuracy - accuracy_error(accuracy, 100) >= 90


def test_a_floor_that_nothing_keeps_leaves_the_network_dense(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, (x, t) = tiny(), points(40)
    t = model(x).argmax(1)  # all are right: 100 % cannot be surpassed
    before = snapshot(model)
    result = prune(model, Again([(x, 2 - t)]), sparsity=0.9, min_accuracy=100.0, recover=False)
    assert not any(row.accepted for row in result.stages)
    assert says(caplog.text, "min_accuracy=100.0", "unchanged")
    assert result.last is None and result.objective is None
    assert result.sparsity == 0 and all(bool(mask.all()) for mask in result.masks.values())
    assert torch.equal(snapshot(model)["0.weight"], before["0.weight"])
    assert json.dumps(result.to_dict(), allow_nan=False)


def test_a_finished_search_makes_way(tmp_path: Any) -> None:
    """It may end before all stages are used, and is no interrupted run then."""
    keywords: dict[str, Any] = {"max_loss_increase": 0.01, "stages": 30, "checkpoints": tmp_path}
    data, trained = cut(points(40), 8), tiny()
    fit(trained, points(40))
    first = prune(copy.deepcopy(trained), data, **{"recover": False, **keywords})
    assert len(first.stages) < 30
    again = prune(copy.deepcopy(trained), data, resume=True, **{"recover": False, **keywords})
    assert again.stages == first.stages
    assert prune(trained, data, seed=1, **{"recover": False, **keywords}).stages != first.stages


def test_a_floor_needs_auto_and_classes() -> None:
    data = cut(points(40), 8)
    with pytest.raises(
        ChitaError, match=naming("sparsity", None, "max_loss_increase", "min_accuracy")
    ):
        chita.prune(tiny(), data, recover=False)
    for name in ("max_loss_increase", "min_accuracy"):
        with pytest.raises(ChitaError, match=naming(name, "method='auto'", "method='obd'")):
            prune(tiny(), data, method="obd", **{name: 10})
    with pytest.raises(ChitaError, match=naming("max_loss_increase", -1)):
        prune(tiny(), data, max_loss_increase=-1, recover=False)
    for slip in (-1, 0.95, 101, float("nan")):
        with pytest.raises(ChitaError, match=naming("min_accuracy", slip)):
            prune(tiny(), data, min_accuracy=slip, recover=False)


def test_a_floor_on_the_way_to_a_pattern_is_told(caplog: pytest.LogCaptureFixture) -> None:
    trained = tiny()
    fit(trained, points(40))
    limits: dict[str, Any] = {"exclude": "0.*", "max_loss_increase": 0.03, "stages": 3}
    result = prune(
        trained, cut(points(40), 8), sparsity="1:4", ridge=1e3, **{"recover": False, **limits}
    )
    assert 0 < result.sparsity < 0.75
    assert says(caplog.text, "1:4")


def test_a_network_without_classes_is_refused_before_any_gradient() -> None:
    """One output, and a loss of its own: the largest of one is always the first."""
    x, t = points(40)
    model = nn.Sequential(*tiny(), nn.Linear(3, 1).double())
    watch = Watch(model)

    def binary(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(outputs, targets)

    with pytest.raises(ChitaError, match=naming("min_accuracy", "(8, 1)")):
        prune(
            model,
            cut((x, (t[:, None] > 0).double()), 8),
            loss=binary,
            min_accuracy=50.0,
            recover=False,
        )
    assert sum(watch.with_gradients) == 1  # a mini-batch, to find what gradients reach
