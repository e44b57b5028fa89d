"""Samples whose labels are all ignored do not count, wherever a loss is measured."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import chita
from chita.curvature.fisher import gradient_matrix
from chita.errors import ChitaError
from chita.model.losses import ignored_label, mean_loss
from chita.model.named_losses import resolve_loss
from chita.model.samples.batch import parse_batch
from chita.model.samples.ignored_labels import ignored_hint, samples_with_labels
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from tests.support.messages import naming, says
from tests.support.pruning import numbers, same, seeded, snapshot

OTHER = 255  # the label of no class in segmentation


def segmented() -> nn.Module:
    """Three classes for each pixel of an image."""
    return seeded(lambda: nn.Sequential(nn.Conv2d(2, 5, 1), nn.ReLU(), nn.Conv2d(5, 3, 1)))


def images(count: int, ignored: int) -> tuple[Tensor, Tensor]:
    """Images whose labels are partly ignored, in every third one all of them."""
    inputs = numbers(count, 2, 4, 4).float()
    labels = (numbers(count, 4, 4) > 0).long() + (inputs[:, 0] > 0)
    labels[:, 0] = ignored
    labels[::3] = ignored
    return inputs, labels


def labelled(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The images that have a label."""
    has = [i for i in range(len(pair[0])) if i % 3]
    return pair[0][has], pair[1][has]


def test_which_label_a_loss_ignores() -> None:
    assert [ignored_label(resolve_loss(name)) for name in (None, "cross_entropy", "nll")] == [
        -100
    ] * 3
    module = resolve_loss(nn.CrossEntropyLoss(ignore_index=OTHER))
    for loss in (module, partial(F.cross_entropy, ignore_index=OTHER)):
        assert ignored_label(loss) == OTHER
    for other in ("mse", "multi_margin", nn.MSELoss(), lambda y, t: y.mean()):
        assert ignored_label(resolve_loss(other)) is None


def test_which_samples_have_a_label() -> None:
    def found(labels: Any, *, predicts: bool = False, pair: bool = False) -> Any:
        labels = torch.tensor(labels)
        content = (torch.zeros(len(labels)), labels) if pair else {"x": labels, "labels": labels}
        index = samples_with_labels(parse_batch(0, content), -100, predicts=predicts)
        return None if index is None else index.tolist()

    assert found([1, -100, 2], pair=True) == [0, 2]
    assert found([[1, -100], [-100, -100], [-100, 0]]) == [0, 2]
    assert found([[1, -100], [-100, -100], [-100, 0]], predicts=True) == [
        2
    ]  # none predicts the first
    assert found([[-100], [-100]], pair=True) == []
    assert found([[1, -100], [-100, 0]]) is None  # all
    assert found([-100.0, -100.0], pair=True) is None  # values of a regression


@pytest.mark.parametrize(
    ("loss", "ignored"), [(None, -100), (nn.CrossEntropyLoss(ignore_index=OTHER), OTHER)]
)
def test_the_loss_and_the_gradients_are_those_of_the_others(loss: Any, ignored: int) -> None:
    model, pair = segmented(), images(30, ignored)
    function = resolve_loss(loss)
    weights, rows = Weights(model), []
    for data in (pair, labelled(pair)):
        stream = SampleStream([data], ignored=ignored_label(function))
        assert stream.count(100) == 20
        rows.append(gradient_matrix(model, weights, stream, rows=10, batch=2, loss=function))
    assert torch.equal(rows[0].losses, rows[1].losses)
    assert torch.equal(*(each.matrix.read(0, weights.size) for each in rows))
    truth = mean_loss(model, [labelled(pair)], function)
    for size in (30, 3, 1):  # as one batch, as small ones, and one by one
        parts = zip(pair[0].split(size), pair[1].split(size), strict=True)
        found = mean_loss(model, list(parts), function)
        assert found == pytest.approx(truth, rel=1e-5)


@pytest.mark.parametrize("recover", [True, False])
@pytest.mark.parametrize("loss", [None, nn.CrossEntropyLoss(ignore_index=OTHER)])
def test_pruning_is_that_of_the_others(
    recover: bool, loss: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ignored = -100 if loss is None else OTHER
    pair, found = images(150, ignored), []
    for data in (pair, labelled(pair)):
        model = segmented()
        parts = zip(data[0].split(10), data[1].split(10), strict=True)
        options: dict[str, Any] = {"budget": "20 steps"} if recover else {}
        chita.prune(model, list(parts), sparsity=0.5, loss=loss, recover=recover,
                    method="chita-bso", batch=1, samples=40, progress=False, **options)  # fmt: skip
        found.append(snapshot(model))
    assert all(bool(tensor.isfinite().all()) for tensor in found[0].values())
    assert says(caplog.text, "batches", "labels", "ignored")


def test_recovery_and_sensitivity_leave_them_out() -> None:
    pair, found = images(90, -100), []
    for data in (pair, labelled(pair)):
        model = segmented()
        with torch.no_grad():
            model[0].weight[::2] = 0.0  # type: ignore[index,operator]
        result = chita.recover(
            model, [data], loss="cross_entropy", budget="20 steps", progress=False
        )
        assert result.samples == 51 and math.isfinite(result.loss_after)
        assert chita.sensitivity(model, [data], sparsities=[0.5]).samples == 60
        found.append(snapshot(model))
    assert same(*found)


def test_labels_that_are_all_ignored_are_an_error() -> None:
    pair = images(9, -100)[0], torch.full((9, 4, 4), -100)
    for call in (
        lambda: chita.prune(segmented(), [pair], sparsity=0.5),
        lambda: chita.recover(segmented(), [pair], loss="cross_entropy"),
    ):
        with pytest.raises(ChitaError, match=naming("batches", "ignored", "loss='distill'")):
            call()
    chita.prune(segmented(), [pair], sparsity=0.5, loss="distill", recover=False, progress=False)


def test_an_unknown_label_of_no_class_is_named() -> None:
    """A function does not show which label it ignores."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, ignore_index=OTHER)

    parts = zip(*(tensor.split(10) for tensor in images(90, OTHER)), strict=True)
    batches = list(parts)
    remedy = naming("ignores", OTHER, "ignore_index=255")
    with pytest.raises(ChitaError, match=remedy):
        chita.prune(segmented(), batches, sparsity=0.5, loss=loss, batch=1, method="chita-bso")
    pruned = segmented()
    with torch.no_grad():
        pruned[0].weight[::2] = 0.0  # type: ignore[index,operator]
    with pytest.raises(ChitaError, match=naming("batch", remedy_of(OTHER))):
        chita.recover(pruned, [images(1, OTHER), *batches], loss=loss, budget="20 steps")
    assert ignored_hint(parse_batch(0, (torch.zeros(2), torch.tensor([1, 1])))) == ""


def remedy_of(label: int) -> str:
    return f"ignore_index={label}"
