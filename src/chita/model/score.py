"""The score of a model on test data: its accuracy, or its loss if the outputs are not classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from chita.errors import ChitaError
from chita.model.accuracy import accuracy, count_right
from chita.model.distill import distilled
from chita.model.forward import device_of, evaluating
from chita.model.losses import Loss, mean_loss
from chita.model.named_losses import DISTILL, DISTILLED, resolve_loss
from chita.model.samples.given_data import are_inputs_alone, read_batches


@dataclass(frozen=True)
class Score:
    """A score on test data.

    Attributes:
        accuracy: the top-1 accuracy in percent; None if the outputs are not classes.
        loss: the mean loss in place of the accuracy; None without test data.
    """

    accuracy: float | None = None
    loss: float | None = None

    def to_dict(self, key: str = "{}") -> dict[str, float | None]:
        """Return the values of a record; with the key "dense_{}", their names start with dense_."""
        return {key.format("accuracy"): self.accuracy, key.format("test_loss"): self.loss}


class Metric:
    """Measures a model on test data, before and after pruning.

    Args:
        model: the model before pruning; a distillation loss compares with its outputs.
        test: batches as for `chita.prune`; None gives an empty score.
        loss: a function of outputs and targets, or its name; None for the cross-entropy, or the
            model's own loss of a dict; "distill" or "distill-mse" for the divergence from the
            outputs of `model`, if there is neither an accuracy nor a loss of its own. The
            divergence is also the score of inputs alone.
    """

    def __init__(self, model: nn.Module, test: Any, loss: Loss | str | None):
        self._test, self._loss = test, resolve_loss(loss)
        self._classes = False
        if test is None:
            return
        self._classes, own_loss = _what_fits(model, test)
        if self._classes or own_loss:
            return
        if loss is None and are_inputs_alone(model, test):
            loss = DISTILL
        if isinstance(loss, str) and loss in DISTILLED:
            stream, dense = distilled(model, test, loss, seed=0)
            self._test = [stream.prepare(batch) for batch in stream.one_pass()]
            self._loss = dense.divergence

    def __call__(self, model: nn.Module) -> Score:
        """Return the score of a model."""
        if self._test is None:
            return Score()
        if self._classes:
            return Score(accuracy=accuracy(model, self._test))
        return Score(loss=mean_loss(model, self._test, self._loss))


@torch.no_grad()
def _what_fits(model: nn.Module, test: Any) -> tuple[bool, bool]:
    """Return whether the first test batch has classes, and whether the model computes its loss."""
    try:
        batch = next(read_batches(model, test), None)
    except ChitaError:  # inputs without targets
        return False, False
    if batch is None:
        raise ChitaError("the test data are empty")
    batch = batch.to(device_of(model))
    with evaluating(model):
        outputs = batch.outputs(model)
    if isinstance(batch.content, dict):
        return False, getattr(outputs, "loss", None) is not None
    return count_right(outputs, batch.content[1]) is not None, False
