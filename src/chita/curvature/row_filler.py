"""Fill A with gradients, chunk by chunk: in batched passes as long as these are correct."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from chita.curvature.gradient_rows import Chunk, Row, RuleError, plain_row, write_rows
from chita.curvature.self_check import self_check
from chita.curvature.source import CountRows
from chita.errors import ChitaError
from chita.model.convolutions import exact_convolutions, rounds_factors
from chita.model.hooks import NotSeparableError, owners
from chita.model.losses import Loss
from chita.model.samples.batch import Batch, tensors_of
from chita.model.samples.ignored_labels import ignored_hint
from chita.model.weights import Weights
from chita.solver.matrix.in_memory import Place, Target

logger = logging.getLogger(__name__)

CheckedShapes = set[tuple[bool, tuple[torch.Size, ...]]]  # without TF32?; of a chunk's tensors


def gradient_dtype(weights: Weights) -> torch.dtype:
    """Return the dtype of the gradients."""
    return torch.promote_types(weights.dtype, torch.float32)


class RowFiller:
    """Fills a target chunk by chunk, in batched passes as long as these are correct.

    Weights without a column in the target get no gradients, and the backward pass ends at the first
    layer with such a column.

    Args:
        model: the model.
        weights: its prunable weights.
        rows: n, the rows of A.
        batch: m, the samples in a mini-batch.
        loss: the loss of one mini-batch.
        target: the storage of A.
        count_rows: called with the finished rows, and with n, after each chunk.
        checked: the shapes of chunks whose rows were compared one by one, at any weights; those of
            this A are added.
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
        checked: CheckedShapes | None = None,
    ) -> None:
        self._count_rows = count_rows
        self.losses = torch.empty(rows, dtype=gradient_dtype(weights), device=weights.device)
        self._model, self._batch, self._loss, self._target = model, batch, loss, target
        self._weights = [w for w in weights if w.start < target.last and w.stop > target.first]
        self._owners = owners(model, self._weights)
        self._done = 0
        self._fast = True
        self._exact = False  # whether convolutions run without rounded factors (TF32)
        self._most, self._halved = rows, False  # the most rows of one batched pass
        self._checked: CheckedShapes = set() if checked is None else checked

    def fill(self, chunks: Iterable[Batch]) -> None:
        """Write the next rows, given in chunks of whole mini-batches."""
        for given in chunks:
            chunk = given.to(self.losses.device)
            self._fast = self._fast and isinstance(chunk.content, tuple)
            self._fill(chunk)

    def _fill(self, chunk: Batch) -> None:
        """Write the rows of a chunk, in batched passes of the most rows that memory allows."""
        rows = chunk.size // self._batch
        if not self._fast or rows == 1:  # plain autograd is as fast for one row
            self.row_by_row(chunk)
        elif rows > self._most:
            for part in chunk.split(self._most * self._batch):
                self._fill(part)
        elif not self._batched(chunk):  # which has changed how the rows are computed
            self._fill(chunk)

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
            with exact_convolutions(self._exact):
                rows = self._checked_rows(chunk, place)
        except torch.cuda.OutOfMemoryError:
            self._use_less_memory(chunk.size // self._batch)
            return False
        except NotSeparableError as error:
            self._use_exact_convolutions(error)
            return False
        except Exception as error:
            self._give_up(error)
            return False
        self._end(place, rows.losses, chunk)
        return True

    def _checked_rows(self, chunk: Batch, place: Place) -> Chunk:
        """Write the rows of a chunk in one batched pass, and check them."""
        rows = write_rows(self._model, self._owners, chunk, self._loss, place)
        if rows.losses.isfinite().all() and place.seems_finite:
            shapes = tuple(tensor.shape for tensor in tensors_of(chunk.content))
            new = (self._exact, shapes) not in self._checked
            self_check(self._model, chunk, self._loss, rows, place, new=new)
            self._checked.add((self._exact, shapes))
        return rows

    def _use_exact_convolutions(self, error: NotSeparableError) -> None:
        """Try again without rounded factors, whose errors look like wrong rows in some networks."""
        if self._exact or self.losses.device.type != "cuda" or not rounds_factors():
            self._give_up(error)
        else:
            self._exact = True
            logger.info("computing gradients without TF32: %s", error)

    def _give_up(self, error: Exception) -> None:
        """Compute the other rows one by one; a real error occurs in plain autograd again."""
        level = logging.WARNING if isinstance(error, RuleError) else logging.INFO
        reason = str(error) or type(error).__name__
        logger.log(level, "computing gradients row by row: %s", reason)
        self._fast = False

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
