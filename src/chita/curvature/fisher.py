"""The Fisher matrix A^T A / n (eq. H_low_rank): per-sample gradients as the rows of A."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import perf_counter

import torch
from torch import Tensor, nn

from chita.curvature.gradient_rows import (
    Row,
    plain_row,
    row_bytes,
    rows_at_once,
    saved_tensors,
)
from chita.curvature.row_filler import CheckedShapes, RowFiller, gradient_dtype
from chita.curvature.source import CountRows, CurvatureSource, LocalModel
from chita.errors import ChitaError
from chita.model.forward import differentiable, evaluating
from chita.model.hooks import owners
from chita.model.losses import Loss
from chita.model.samples.batch import Batch, bytes_of
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.division import share_rows
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.in_memory import Demand, HeldTarget, Store, Target

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gradients:
    """A and the losses of its rows, (n,), at the current weights of a model."""

    matrix: GradientMatrix
    losses: Tensor

    @property
    def loss(self) -> float:
        """The mean over the rows."""
        return float(self.losses.mean())


@dataclass(frozen=True)
class Fisher(CurvatureSource):
    """The empirical Fisher matrix of the calibration samples.

    Each rank computes its share of the rows of A and receives its columns of the whole matrix.
    """

    # The shapes of chunks whose rows were compared one by one, in any stage.
    _checked: CheckedShapes = field(default_factory=set, repr=False)
    uses_gradients = True

    def at(self, w0: Tensor) -> LocalModel:
        """Return A at w0, (p,), with the mean loss and the first-order term of its rows."""
        given = self.sampled
        matrix, losses = self._gradients()
        if given.distilled:
            return LocalModel(matrix, None, losses, given.samples)
        return LocalModel(matrix, float(losses.double().mean()), given.alpha, given.samples)

    def _gradients(self) -> tuple[GradientMatrix, Tensor]:
        """Return A and the losses of the rows of all ranks, (n,)."""
        given, ranks = self.sampled, self.sampled.ranks
        rows = share_rows(given.rows, ranks)
        given.stream.skip(sum(rows[: ranks.rank]) * given.batch)
        found = gradient_matrix(
            given.model,
            given.weights,
            given.stream,
            rows=rows[ranks.rank],
            batch=given.batch,
            loss=given.row_loss,
            store=given.store,
            count_rows=given.count_rows,
            checked=self._checked,
        )
        given.stream.skip(sum(rows[ranks.rank + 1 :]) * given.batch)
        return found.matrix, ranks.gather(found.losses)


def gradient_matrix(
    model: nn.Module,
    weights: Weights,
    stream: SampleStream,
    *,
    rows: int,
    batch: int,
    loss: Loss | None = None,
    store: Store = HeldTarget,
    count_rows: CountRows | None = None,
    checked: CheckedShapes | None = None,
) -> Gradients:
    """Compute A: row i is the gradient of the mean loss of mini-batch i.

    The model runs in eval mode and keeps its state. The gradients are float64 for a float64 model
    and float32 otherwise, on the device of the model.

    Args:
        model: any module.
        weights: its prunable weights, p in total.
        stream: the samples; the next rows * batch of them are read.
        rows: n, the rows of A.
        batch: m, the samples in a mini-batch.
        loss: loss(outputs, targets) -> scalar of one mini-batch; the cross-entropy by default.
            Batches that are dicts use the loss of the model.
        store: chooses the storage of A from its size and the cost of its first row; by default A
            is held in memory, on the device of the model.
        count_rows: called with the finished rows, and with n, after each chunk.
        checked: the shapes of chunks whose rows an earlier call has compared one by one.

    Raises:
        ChitaError: There are too few samples, the loss is not a finite scalar, or gradients are not
            finite.
    """
    if rows < 1 or batch < 1:
        raise ChitaError(f"rows and batch must be at least 1, got rows={rows}, batch={batch}")
    held = stream.count(rows * batch)
    if held < rows * batch:
        raise ChitaError(
            f"{rows} rows of {batch} samples need {rows * batch} samples, but batches hold {held}"
        )
    with evaluating(model), differentiable(weights):
        first = next(stream.take(batch, batch))
        row, demand = _first_row(model, weights, first, rows, loss)
        target = store(demand)
        filler = RowFiller(model, weights, rows, batch, loss, target, count_rows, checked)
        filler.write(row, first)
        del row  # it has the size of a row of A
        size = min(demand.chunk, target.most_rows)
        rest: Iterable[Batch] = stream.take((rows - 1) * batch, size * batch, unit=batch)
        if target.several_passes:
            rest = list(rest)
        filler.fill(rest)

    def again(other: Target) -> None:
        with evaluating(model), differentiable(weights):
            filler = RowFiller(model, weights, rows, batch, loss, other)
            filler.row_by_row(first)
            filler.fill(rest)

    return Gradients(target.matrix(again), filler.losses)


def _first_row(
    model: nn.Module, weights: Weights, batch: Batch, rows: int, loss: Loss | None
) -> tuple[Row, Demand]:
    """Compute row 0 by plain autograd: it raises a user's errors and measures the cost of a row."""
    device = weights.device
    began = perf_counter()
    with saved_tensors(model) as saved:
        row = plain_row(model, weights.entries, batch.to(device), loss)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    each = row_bytes(owners(model, weights), saved)
    demand = Demand(
        rows=rows,
        columns=weights.size,
        dtype=gradient_dtype(weights),
        device=device,
        chunk=min(rows, rows_at_once(each, device)),
        row_bytes=each,
        row_seconds=perf_counter() - began,
        sample_bytes=bytes_of(batch.content),
    )
    return row, demand
