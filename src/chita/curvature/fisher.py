"""The Fisher matrix A^T A / n (eq. H_low_rank): per-sample gradients as the rows of A."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor, nn

from chita.curvature.gradient_rows import (
    Row,
    RuleError,
    plain_row,
    row_bytes,
    rows_at_once,
    saved_tensors,
    write_rows,
)
from chita.curvature.self_check import self_check
from chita.curvature.source import CountRows, CurvatureSource, LocalModel
from chita.errors import ChitaError
from chita.model.forward import differentiable, evaluating
from chita.model.hooks import owners
from chita.model.losses import Loss
from chita.model.samples.batch import Batch, bytes_of, tensors_of
from chita.model.samples.ignored_labels import ignored_hint
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.division import share_rows
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.in_memory import Demand, HeldTarget, Place, Store, Target

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


class Fisher(CurvatureSource):
    """The empirical Fisher matrix of the calibration samples.

    Each rank computes its share of the rows of A and receives its columns of the whole matrix.
    """

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
        filler = _Filler(model, weights, rows, batch, loss, target, count_rows)
        filler.write(row, first)
        del row  # it has the size of a row of A
        size = min(demand.chunk, target.most_rows)
        rest: Iterable[Batch] = stream.take((rows - 1) * batch, size * batch, unit=batch)
        if target.several_passes:
            rest = list(rest)
        filler.fill(rest)

    def again(other: Target) -> None:
        with evaluating(model), differentiable(weights):
            filler = _Filler(model, weights, rows, batch, loss, other)
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
        dtype=_dtype(weights),
        device=device,
        chunk=min(rows, rows_at_once(each, device)),
        row_bytes=each,
        row_seconds=perf_counter() - began,
        sample_bytes=bytes_of(batch.content),
    )
    return row, demand


def _dtype(weights: Weights) -> torch.dtype:
    """Return the dtype of the gradients."""
    return torch.promote_types(weights.dtype, torch.float32)


class _Filler:
    """Fills a target chunk by chunk, in batched passes as long as these are correct.

    Weights without a column in the target get no gradients, and the backward pass ends at the first
    layer with such a column.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: Weights,
        rows: int,
        batch: int,
        loss: Loss | None,
        target: Target,
        count_rows: CountRows | None = None,
    ) -> None:
        self._count_rows = count_rows
        self.losses = torch.empty(rows, dtype=_dtype(weights), device=weights.device)
        self._model, self._batch, self._loss, self._target = model, batch, loss, target
        self._weights = [w for w in weights if w.start < target.last and w.stop > target.first]
        self._owners = owners(model, self._weights)
        self._done = 0
        self._fast = True
        self._most, self._halved = rows, False  # the most rows of one batched pass
        self._checked: set[tuple[torch.Size, ...]] = set()

    def fill(self, chunks: Iterable[Batch]) -> None:
        """Write the next rows, given in chunks of whole mini-batches."""
        for given in chunks:
            chunk = given.to(self.losses.device)
            self._fast = self._fast and isinstance(chunk.content, tuple)
            self._fill(chunk)

    def _fill(self, chunk: Batch) -> None:
        """Write the rows of a chunk, in batched passes of the most rows that memory allows."""
        rows = chunk.size // self._batch
        # For a single row, plain autograd is as fast, and needs no check.
        if self._fast and 1 < rows <= self._most and self._batched(chunk):
            return
        if self._fast and rows > self._most:  # also if memory was exceeded just now
            for part in chunk.split(self._most * self._batch):
                self._fill(part)
        else:
            self.row_by_row(chunk)

    def row_by_row(self, chunk: Batch) -> None:
        """Write the next rows, each computed by plain autograd."""
        for batch in chunk.to(self.losses.device).split(self._batch):
            self.write(plain_row(self._model, self._weights, batch, self._loss), batch)

    def write(self, row: Row, batch: Batch) -> None:
        """Write the next row, computed by plain autograd from a mini-batch."""
        place = self._target.begin(1)
        row.write(place)
        self._end(place, row.loss.reshape(1), batch)

    def _batched(self, chunk: Batch) -> bool:
        """Write the rows of a chunk in one batched pass; return False if that fails."""
        place = self._target.begin(chunk.size // self._batch)
        try:
            rows = write_rows(self._model, self._owners, chunk, self._loss, place)
            if rows.losses.isfinite().all() and place.seems_finite:
                shapes = tuple(tensor.shape for tensor in tensors_of(chunk.content))
                new = shapes not in self._checked
                self_check(self._model, chunk, self._loss, rows, place, new=new)
                self._checked.add(shapes)
        except torch.cuda.OutOfMemoryError:
            self._use_less_memory(chunk.size // self._batch)
            return False
        except Exception as error:  # a real error occurs in plain autograd again
            level = logging.WARNING if isinstance(error, RuleError) else logging.INFO
            reason = str(error) or type(error).__name__
            logger.log(level, "computing gradients row by row: %s", reason)
            self._fast = False
            return False
        self._end(place, rows.losses, chunk)
        return True

    def _use_less_memory(self, rows: int) -> None:
        """Halve the rows of a batched pass, in which memory was exceeded; then give them up."""
        if self._halved:
            self._fast, now = False, "row by row"
        else:
            self._most, self._halved = -(-rows // 2), True
            now = f"of {self._most} rows at a time"
        logger.warning(
            "computing gradients %s, not of %d: the GPU has too little free memory", now, rows
        )

    def _end(self, place: Place, losses: Tensor, chunk: Batch) -> None:
        """Check and finish the rows of a place, whose losses are (R,), from R * m samples."""
        wrong = (~losses.isfinite()).nonzero().flatten().tolist()
        if wrong:
            start = wrong[0] * self._batch
            hint = ignored_hint(chunk[start : start + self._batch])
            raise ChitaError(
                f"the loss of {self._name(wrong[0])} is {losses[wrong[0]].item()}: "
                f"the model and the data must give finite losses{hint}"
            )
        if not place.seems_finite:
            self._check_finite(place)
        self._target.end()
        self.losses[self._done : self._done + len(losses)] = losses
        self._done += len(losses)
        if self._count_rows is not None:
            self._count_rows(self._done, len(self.losses))

    def _check_finite(self, place: Place) -> None:
        for weight in self._weights:
            columns = place.columns[place.clip(weight.start, weight.stop)[0]]
            wrong = (~columns.isfinite()).any(0).nonzero().flatten().tolist()
            if wrong:
                raise ChitaError(
                    f"the gradients of {weight.name} are not finite for {self._name(wrong[0])}"
                )

    def _name(self, row: int) -> str:
        """Describe a row of the place by its samples: the batches of the user were regrouped."""
        row += self._done
        first, last = row * self._batch, (row + 1) * self._batch - 1
        samples = f"sample {first}" if first == last else f"samples {first} to {last}"
        return f"row {row} of A ({samples} of those read for it)"
