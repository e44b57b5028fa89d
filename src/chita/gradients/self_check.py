"""The fast way against plain autograd, on two rows: whether this model may use it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from chita.batch import Batch
from chita.gradients.capture import NotSeparableError
from chita.gradients.row_by_row import Row
from chita.storage.target import Place


def self_check(
    batch: Batch,
    truth: Callable[[Batch], Row],
    losses: Tensor,
    place: Place,
    called: set[str],
) -> None:
    """Compare the rows of the largest losses, as a gradient close to zero would prove nothing.

    Args:
        batch: R * m samples.
        truth: gives the row of a mini-batch alone by plain autograd, for the
            weights that have columns in the place.
        losses: (R,), as the fast way found them.
        place: of R rows, likewise.
        called: the names of the weights whose module was called.

    Raises:
        NotSeparableError: a row is not what plain autograd gives.
    """
    rows = list(batch.split(batch.size // len(losses)))
    for r in losses.topk(min(2, len(losses))).indices.tolist():
        _compare(truth(rows[r]), Place(place.columns[:, r : r + 1], place.first), called)


def _compare(truth: Row, place: Place, called: set[str]) -> None:
    row = place.columns[:, 0]
    tolerance = 3 * _rounding(truth.weights[0].parameter) ** 0.5  # 1e-3 in float32
    floor = 1e-3 * row.norm()  # a weight whose gradient is only rounding errors passes
    for weight, gradient in zip(truth.weights, truth.gradients, strict=True):
        if gradient is None:
            continue
        if weight.name not in called:
            raise NotSeparableError(f"{weight.name} is used outside its module")
        there, here = place.clip(weight.start, weight.stop)
        expected = gradient.reshape(-1)[here].to(row.dtype)
        error = (row[there] - expected).norm()
        if not error <= tolerance * (expected.norm() + floor):
            raise NotSeparableError(
                f"the gradients of {weight.name} come out differently in a batch of many rows"
            )


def _rounding(weight: Tensor) -> float:
    """The relative error of one operation; GPUs may multiply float32 with 10 bits (TF32)."""
    if weight.dtype == torch.float32 and weight.device.type == "cuda":
        return 2.0**-10
    return torch.finfo(weight.dtype).eps
