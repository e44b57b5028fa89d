"""The score of a model on test data in the forms that people have, by each kind of loss."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.accuracy import accuracy
from chita.model.score import Metric, Score
from tests.support.messages import naming
from tests.support.pruning import points, tiny

X, Y = points(30)


class WithLoss(nn.Module):
    """A model that computes its own loss, as those of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(X.shape[1], 2, dtype=X.dtype)

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.layer(inputs)
        loss = None if labels is None else (logits.sum(1) - labels).square().mean()
        return SimpleNamespace(logits=logits, loss=loss)


def test_classes() -> None:
    expected = accuracy(tiny(), [(X, Y)])
    for test in ([(X, Y)], (X.numpy(), Y.int().numpy()), (X, Y[:, None]), lambda: iter([(X, Y)])):
        score = Metric(tiny(), test, None)(tiny())
        assert (score.accuracy, score.loss) == (expected, None)


def test_a_named_loss_is_not_a_distillation() -> None:
    model, values = tiny(), X[:, :3]
    score = Metric(tiny(), (X, values), "mse")(model)
    expected = (model(X) - values).square().mean().item()
    assert score.accuracy is None
    assert score.loss == pytest.approx(expected)
    module = Metric(tiny(), (X, values), nn.MSELoss())(model)
    assert module.loss == pytest.approx(expected)


@pytest.mark.parametrize("test", [X, X.numpy(), [(X,)]])
@pytest.mark.parametrize("loss", [None, "distill"])
def test_inputs_alone_are_compared_with_the_dense_outputs(test: Any, loss: str | None) -> None:
    metric, other = Metric(tiny(), test, loss), tiny(seed=1)
    with torch.no_grad():
        log_p0, log_p = (model(X).log_softmax(1) for model in (tiny(), other))
    expected = (log_p0.exp() * (log_p0 - log_p)).sum(1).mean().item()
    assert metric(tiny()).loss == pytest.approx(0, abs=1e-9)
    assert metric(other).loss == pytest.approx(expected)


def test_without_data() -> None:
    assert Metric(tiny(), None, None)(tiny()).accuracy is None
    with pytest.raises(ChitaError, match=naming("test", "empty")):
        Metric(tiny(), [], None)
    with pytest.raises(ChitaError, match=naming("loss", "squares")):
        Metric(tiny(), [(X, Y)], "squares")


def test_classes_have_an_accuracy_whatever_the_loss() -> None:
    model = tiny()
    test = [(X, model(X).argmax(1))]
    for loss in (None, "distill", lambda outputs, targets: outputs.mean()):
        assert Metric(model, test, loss)(model) == Score(accuracy=100.0)


def test_a_model_may_compute_its_own_loss() -> None:
    model = WithLoss()
    test = [{"inputs": X, "labels": torch.ones(30)}]
    wanted = float((model.layer(X).sum(1) - 1).square().mean())
    for loss in (None, "distill"):
        assert Metric(model, test, loss)(model).loss == pytest.approx(wanted)
    unlabelled = Metric(model, [{"inputs": X}], "distill")
    assert unlabelled(model).loss == pytest.approx(0, abs=1e-9)
