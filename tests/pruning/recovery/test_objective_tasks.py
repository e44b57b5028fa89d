"""What recovery trains on: the answers of the dense network, or the loss of the run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from chita.model.distill import DenseNetwork
from chita.model.samples.batch import Batch
from chita.pruning.recovery.objective import (
    DISTILL,
    LOSS,
    distillation,
    own_loss,
    own_loss_of,
    tasks_for,
    treats_as_features,
)
from tests.support.messages import says
from tests.support.pruning import numbers, points, seeded, tiny
from tests.support.recovering import CPU, Tokens, batch_of, draw, padded, parts


def test_the_loss_of_the_run_is_the_users() -> None:
    model: Any = tiny()
    pair = points(40)
    task = own_loss([batch_of(*pair)], None, at_once=16, place=CPU)
    found = task.objective(model, task.example)
    torch.testing.assert_close(found, F.cross_entropy(model(pair[0]), pair[1]))
    task = own_loss([batch_of(*pair)], lambda out, y: out.sum(), at_once=16, place=CPU)
    torch.testing.assert_close(task.objective(model, task.example), model(pair[0]).sum())


class Pairs(nn.Module):
    """Its outputs are a dict without logits, which cannot be compared."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3).double()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"boxes": self.layer(x)}


def test_outputs_that_cannot_be_compared_leave_the_loss(caplog: pytest.LogCaptureFixture) -> None:
    model: Any = seeded(Pairs)
    inputs, targets = points(40)
    batch = batch_of(inputs, targets)
    (task,) = tasks_for(
        model,
        lambda: [batch],
        batch,
        lambda out, y: F.cross_entropy(out["boxes"], y),
        squares=False,
        labelled=True,
        at_once=16,
        place=CPU,
    )
    assert says(caplog.text, "loss", "dict")
    truth = F.cross_entropy(model.layer(inputs), targets)
    torch.testing.assert_close(task.objective(model, task.example), truth)


def test_a_comparable_model_is_distilled_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model: Any = tiny()
    inputs, labels = points(40)
    batch = batch_of(inputs, labels)
    task, own = tasks_for(
        model,
        lambda: [batch],
        batch,
        None,
        squares=False,
        labelled=True,
        at_once=16,
        place=CPU,
    )
    assert not caplog.records
    assert float(task.objective(model, task.example).detach()) == pytest.approx(0, abs=1e-14)
    assert (task.name, own.name) == (DISTILL, LOSS) and own.pool is task.pool
    truth = F.cross_entropy(model(inputs), labels)
    torch.testing.assert_close(own.objective(model, own.example), truth)


def test_the_samples_of_a_distillation_keep_the_targets_of_the_run() -> None:
    """Each label is the sum of its inputs, so that a shuffled pair would not fit."""
    inputs = points(160)[0]
    batch = batch_of(inputs, inputs.sum(1))
    dense = DenseNetwork(tiny(), batch, 0, squares=False)
    task = own_loss_of(distillation(dense, [batch], batch, at_once=64, place=CPU), None)
    for drawn in draw(task, 20):
        (x,), labels = parts(drawn)
        torch.testing.assert_close(labels, x.sum(1))


def test_a_dict_of_keywords_keeps_its_labels() -> None:
    keywords = {**padded(20), "labels": torch.arange(20)}

    class Labelled(Tokens):
        def forward(self, labels: Any = None, **inputs: Tensor) -> Any:
            return super().forward(**inputs)

    model: Any = seeded(Labelled)
    batch = Batch(keywords, 20)
    dense = DenseNetwork(model, batch, 0, squares=False)
    own = own_loss_of(distillation(dense, [batch], batch, at_once=8, place=CPU), None)
    for drawn in draw(own, 3):
        assert isinstance(drawn.content, dict) and drawn.content.keys() == keywords.keys()


@pytest.mark.parametrize(
    ("content", "loss", "features"),
    [
        (((numbers(2, 3),), torch.zeros(2)), None, False),
        (((numbers(2, 3),), torch.zeros(2)), F.mse_loss, True),
        (((numbers(2, 3),), torch.zeros(2)), "distill", False),
        ({"x": numbers(2, 3), "labels": torch.zeros(2)}, None, True),
        ({"x": numbers(2, 3), "labels": torch.zeros(2).long()}, None, False),
    ],
)
def test_the_loss_and_the_labels_say_what_outputs_are(
    content: Any, loss: Any, features: bool
) -> None:
    assert treats_as_features(Batch(content, 2), loss) == features
