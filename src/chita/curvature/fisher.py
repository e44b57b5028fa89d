"""A model and samples -> A."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor, nn

from chita.curvature.batched import row_bytes, rows_at_once, saved_tensors, write_rows
from chita.curvature.row_by_row import Row, plain_row
from chita.curvature.self_check import self_check
from chita.errors import ChitaError
from chita.model.batch import Batch, tensors_of
from chita.model.forward import differentiable, evaluating
from chita.model.hooks import owners
from chita.model.losses import Loss
from chita.model.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.held import HeldTarget
from chita.solver.matrix.target import Demand, Place, Store, Target

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gradients:
    """A, and the losses of its rows, (n,), at the weights it was taken at."""

    matrix: GradientMatrix
    losses: Tensor

    @property
    def loss(self) -> float:
        """The mean over the rows."""
        return float(self.losses.mean())


def gradient_matrix(
    model: nn.Module,
    weights: Weights,
    stream: SampleStream,
    *,
    rows: int,
    batch: int,
    loss: Loss | None = None,
    store: Store = HeldTarget,
) -> Gradients:
    """The matrix A: row i is the gradient of the mean loss of mini-batch i.

    The model is run in eval mode and left as it was. The gradients are float64 if the model is,
    float32 otherwise, and made where the model is.

    Args:
        model: any module.
        weights: its prunable weights, p in all.
        stream: where the next rows * batch samples are taken from.
        rows: n, the rows of A.
        batch: m, the samples in a mini-batch.
        loss: loss(outputs, targets) -> scalar of one mini-batch; the cross-entropy by default.
            Batches that are dicts use the model's own loss.
        store: given the size of A and the cost of its first row, says where to put it; in memory
            beside the model by default.

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
        first = next(stream.take(batch, batch))
        row, demand = _first_row(model, weights, first, rows, loss)
        target = store(demand)
        filler = _Filler(model, weights, rows, batch, loss, target)
        filler.write(row)
        del row  # as large as a row of A is
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
    """Row 0, by plain autograd: it shows what the user got wrong, and what the others will cost."""
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
        sample_bytes=sum(t.numel() * t.element_size() for t in tensors_of(batch.content)),
    )
    return row, demand


def _dtype(weights: Weights) -> torch.dtype:
    """Of the gradients."""
    return torch.promote_types(weights.dtype, torch.float32)


class _Filler:
    """Fills a target chunk by chunk, the fast way as long as that is right.

    Weights that have no column in the target have no part in it: no gradients are made for them,
    and the backward pass ends at the first layer that has.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: Weights,
        rows: int,
        batch: int,
        loss: Loss | None,
        target: Target,
    ) -> None:
        self.losses = torch.empty(rows, dtype=_dtype(weights), device=weights.device)
        self._model, self._batch, self._loss, self._target = model, batch, loss, target
        self._weights = [w for w in weights if w.start < target.last and w.stop > target.first]
        self._owners = owners(model, self._weights)
        self._done = 0
        self._fast = True
        self._checked: set[tuple[torch.Size, ...]] = set()

    def fill(self, chunks: Iterable[Batch]) -> None:
        """The next rows, in chunks of whole mini-batches."""
        for given in chunks:
            chunk = given.to(self.losses.device)
            self._fast = self._fast and isinstance(chunk.content, tuple)
            alone = chunk.size == self._batch  # plain autograd is as fast, and needs no check
            if alone or not (self._fast and self._batched(chunk)):
                self.row_by_row(chunk)

    def row_by_row(self, chunk: Batch) -> None:
        """The next rows, each by plain autograd."""
        for batch in chunk.to(self.losses.device).split(self._batch):
            self.write(plain_row(self._model, self._weights, batch, self._loss))

    def write(self, row: Row) -> None:
        """The next row, found by plain autograd."""
        place = self._target.begin(1)
        row.write(place)
        self._end(place, row.loss.reshape(1))

    def _batched(self, chunk: Batch) -> bool:
        """Try the fast way; where it does not suit the model, say so."""
        place = self._target.begin(chunk.size // self._batch)
        try:
            rows = write_rows(self._model, self._owners, chunk, self._loss, place)
            if rows.losses.isfinite().all() and place.seems_finite:
                shapes = tuple(tensor.shape for tensor in tensors_of(chunk.content))
                new = shapes not in self._checked
                self_check(self._model, chunk, self._loss, rows, place, new=new)
                self._checked.add(shapes)
        except Exception as error:  # whatever it is, plain autograd meets it again if it is real
            logger.info("gradients are taken row by row: %s", str(error) or type(error).__name__)
            self._fast = False
            return False
        self._end(place, rows.losses)
        return True

    def _end(self, place: Place, losses: Tensor) -> None:
        """The rows of a place are written; their losses are (R,)."""
        wrong = (~losses.isfinite()).nonzero().flatten().tolist()
        if wrong:
            raise ChitaError(
                f"the loss of {self._name(wrong[0])} is {losses[wrong[0]].item()}: "
                "the model and the data must give finite losses"
            )
        if not place.seems_finite:
            self._check_finite(place)
        self._target.end()
        self.losses[self._done : self._done + len(losses)] = losses
        self._done += len(losses)

    def _check_finite(self, place: Place) -> None:
        for weight in self._weights:
            columns = place.columns[place.clip(weight.start, weight.stop)[0]]
            wrong = (~columns.isfinite()).any(0).nonzero().flatten().tolist()
            if wrong:
                raise ChitaError(
                    f"the gradients of {weight.name} are not finite for {self._name(wrong[0])}"
                )

    def _name(self, row: int) -> str:
        """A row of the place for people: their own batches were cut up and joined for it."""
        row += self._done
        first, last = row * self._batch, (row + 1) * self._batch - 1
        samples = f"sample {first}" if first == last else f"samples {first} to {last}"
        return f"row {row} of A ({samples} of those read for it)"
