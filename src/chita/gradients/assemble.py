"""A model and samples -> A."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from chita.batches import Batch, SampleStream
from chita.errors import ChitaError
from chita.gradients.batched import write_rows
from chita.gradients.capture import owners
from chita.gradients.losses import Loss
from chita.gradients.memory import rows_at_once, saved_tensors
from chita.gradients.row_by_row import plain_row
from chita.gradients.self_check import self_check
from chita.matrix import GradientMatrix
from chita.modes import differentiable, evaluating
from chita.storage import HeldMatrix
from chita.weights import Weights

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gradients:
    """A, and the mean loss over its rows at the weights it was taken at."""

    matrix: GradientMatrix
    loss: float


def gradient_matrix(
    model: nn.Module,
    weights: Weights,
    stream: SampleStream,
    *,
    rows: int,
    batch: int,
    loss: Loss | None = None,
) -> Gradients:
    """The matrix A: row i is the gradient of the mean loss of mini-batch i.

    The model is run in eval mode and left as it was. A is float64 if the model is, float32
    otherwise, and lives where the model does.

    Args:
        model: any module.
        weights: its prunable weights, p in all.
        stream: where the next rows * batch samples are taken from.
        rows: n, the rows of A.
        batch: m, the samples in a mini-batch.
        loss: loss(outputs, targets) -> scalar of one mini-batch; the cross-entropy by default.
            Batches that are dicts use the model's own loss.

    Raises:
        ChitaError: too few samples, a loss that is no finite scalar, gradients that are not finite.
    """
    if rows < 1 or batch < 1:
        raise ChitaError(f"rows and batch must be at least 1, got rows={rows}, batch={batch}")
    held = stream.count(rows * batch)
    if held < rows * batch:
        raise ChitaError(
            f"{rows} rows of {batch} samples need {rows * batch} samples, but batches hold {held}"
        )
    with evaluating(model), differentiable(weights):
        filler = _Filler(model, weights, rows, batch, loss)
        filler.first(next(stream.take(batch, batch)))
        for chunk in stream.take((rows - 1) * batch, filler.chunk_rows * batch, unit=batch):
            filler.next(chunk)
    _check_finite_gradients(weights, filler.columns)
    return Gradients(HeldMatrix(filler.columns), float(filler.losses.mean()))


class _Filler:
    """Fills A chunk by chunk, the fast way as long as that is right."""

    def __init__(
        self, model: nn.Module, weights: Weights, rows: int, batch: int, loss: Loss | None
    ) -> None:
        dtype = torch.promote_types(weights.dtype, torch.float32)
        self.columns = torch.empty(weights.size, rows, dtype=dtype, device=weights.device)
        self.losses = torch.empty(rows, dtype=dtype, device=weights.device)
        self.chunk_rows = 1
        self._model, self._weights, self._batch, self._loss = model, weights, batch, loss
        self._owners = owners(model, weights)
        self._done = 0
        self._fast = True
        self._checked = False

    def first(self, batch: Batch) -> None:
        """Row 0, by plain autograd: it shows what the user got wrong, and how large a row is."""
        with saved_tensors(self._model) as saved:
            self._row_by_row(batch.to(self._weights.device))
        self._fast = isinstance(batch.content, tuple)
        self.chunk_rows = rows_at_once(self._owners, saved, self._weights.device)

    def next(self, chunk: Batch) -> None:
        """The next rows, in a chunk of whole mini-batches."""
        chunk = chunk.to(self._weights.device)
        if not (self._fast and self._batched(chunk)):
            self._row_by_row(chunk)

    def _batched(self, chunk: Batch) -> bool:
        """Try the fast way; where it does not suit the model, say so."""
        place = self.columns[:, self._done : self._done + chunk.size // self._batch]
        try:
            losses, called = write_rows(self._model, self._owners, chunk, self._loss, place)
            if not self._checked and losses.isfinite().all():
                truth = partial(plain_row, self._model, self._weights, loss=self._loss)
                self_check(self._weights, chunk, truth, losses, place, called)
                self._checked = True
        except Exception as error:  # whatever it is, plain autograd meets it again if it is real
            logger.info("gradients are taken row by row: %s", str(error) or type(error).__name__)
            self._fast = False
            return False
        self._note(losses)
        return True

    def _row_by_row(self, chunk: Batch) -> None:
        for batch in chunk.split(self._batch):
            row = plain_row(self._model, self._weights, batch, self._loss)
            row.write(self._weights, self.columns[:, self._done])
            self._note(row.loss.reshape(1))

    def _note(self, losses: Tensor) -> None:
        """The losses (R,) of the rows just written."""
        wrong = (~losses.isfinite()).nonzero().flatten().tolist()
        if wrong:
            raise ChitaError(
                f"the loss of mini-batch {self._done + wrong[0]} is {losses[wrong[0]].item()}: "
                "the model and the data must give finite losses"
            )
        self.losses[self._done : self._done + len(losses)] = losses
        self._done += len(losses)


def _check_finite_gradients(weights: Weights, columns: Tensor) -> None:
    if columns.sum().isfinite():  # one quick pass: what is not finite stays so in the sum
        return
    for weight in weights:
        wrong = (~columns[weight.span].isfinite()).any(0).nonzero().flatten().tolist()
        if wrong:
            raise ChitaError(
                f"the gradients of {weight.name} are not finite for mini-batch {wrong[0]}"
            )
