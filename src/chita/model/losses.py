"""The loss of one mini-batch: what the rows of A are gradients of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.errors import ChitaError
from chita.model.batch import MISFITS, Batch, map_tensors
from chita.model.outputs import logits_of

Loss = Callable[[Any, Any], Tensor]

IGNORED = -100  # the target that torch's cross-entropy leaves out of its mean


def batch_loss(model: nn.Module, batch: Batch, loss: Loss | None) -> Tensor:
    """The loss of the whole batch, a scalar.

    A pair (inputs, targets) gives loss(model(*inputs), targets), by default the cross-entropy; a
    dict gives the `.loss` of model(**dict).
    """
    if isinstance(batch.content, dict):
        return _own_loss(model, batch, loss)
    outputs, targets = batch.outputs(model), batch.content[1]
    if loss is None:
        return cross_entropy(outputs, targets)
    return scalar(_call(loss, outputs, targets))


def _call(loss: Loss, outputs: Any, targets: Any) -> Any:
    """What a user's loss gives; says what it was given if it fails."""
    try:
        return loss(outputs, targets)
    except (ChitaError, torch.cuda.OutOfMemoryError):
        raise
    except MISFITS as error:
        raise ChitaError(
            f"loss fails on outputs {_describe(outputs)} and targets {_describe(targets)}: "
            f"{type(error).__name__}: {error}"
        ) from error


def cross_entropy(outputs: Any, targets: Any) -> Tensor:
    """The mean cross-entropy; says what does not fit instead of torch's message."""
    outputs = logits_of(outputs)
    try:
        return functional.cross_entropy(outputs, targets)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ChitaError(
            f"the cross-entropy takes no outputs {_describe(outputs)} with targets "
            f"{_describe(targets)}; pass another loss= ({error})"
        ) from error


def row_losses(loss: Loss | None, outputs: Any, targets: Any, rows: int) -> Tensor:
    """The loss of each of R mini-batches, (R,), from the outputs of all their samples.

    Args:
        loss: of one mini-batch; None for the cross-entropy.
        outputs: of the model, tensors of shape (R * m, ...).
        targets: of the same samples.
        rows: R.
    """
    if loss is None:
        return _row_cross_entropies(outputs, targets, rows)

    def by_row(nest: Any) -> Any:
        return map_tensors(lambda tensor: tensor.reshape(rows, -1, *tensor.shape[1:]), nest)

    outputs, targets = by_row(outputs), by_row(targets)
    try:
        return torch.func.vmap(loss)(outputs, targets)
    except Exception:  # torch cannot vectorise it

        def row(nest: Any, r: int) -> Any:
            return map_tensors(lambda tensor: tensor[r], nest)

        return torch.stack([_call(loss, row(outputs, r), row(targets, r)) for r in range(rows)])


def _row_cross_entropies(outputs: Any, targets: Tensor, rows: int) -> Tensor:
    """The mean cross-entropy of each of R mini-batches, (R,), from all their samples at once."""
    each = functional.cross_entropy(logits_of(outputs), targets, reduction="none")
    counted = (
        torch.ones_like(each) if targets.is_floating_point() else (targets != IGNORED).to(each)
    )
    return each.view(rows, -1).sum(1) / counted.view(rows, -1).sum(1)


def scalar(value: Any) -> Tensor:
    """`value`, if it is what a loss must be."""
    if not isinstance(value, Tensor) or value.ndim != 0:
        raise ChitaError(
            "the loss must be a scalar tensor for each mini-batch, got one "
            f"{_describe(value)}; take the mean of a tensor, and no .item() of it"
        )
    return value


def _own_loss(model: nn.Module, batch: Batch, loss: Loss | None) -> Tensor:
    if loss is not None:
        raise ChitaError(
            "loss= is for batches of (inputs, targets); with dicts the model's own .loss is used"
        )
    outputs = batch.outputs(model)
    value = getattr(outputs, "loss", None)
    if value is None:
        raise ChitaError(
            f"the model gave no .loss for a batch with the keys {', '.join(batch.inputs)} "
            f"(it returned {_describe(outputs)}); add the labels, give (inputs, targets), "
            "or calibrate without labels by loss='distill'"
        )
    return scalar(value)


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"of shape {tuple(value.shape)} ({value.dtype})"
    return f"of type {type(value).__name__}"
