"""The loss of a mini-batch, with and without gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.errors import ChitaError
from chita.model.forward import device_of, evaluating, logits_of
from chita.model.samples.arrays import IGNORED, InputSpec
from chita.model.samples.batch import Batch, copied, map_tensors
from chita.model.samples.given_data import read_batches
from chita.model.samples.ignored_labels import with_labels
from chita.model.samples.misfits import MISFITS

Loss = Callable[[Any, Any], Tensor]


def batch_loss(model: nn.Module, batch: Batch, loss: Loss | None) -> Tensor:
    """Compute the loss of the whole batch, a scalar.

    For a pair (inputs, targets) this is loss(model(*inputs), targets), by default the
    cross-entropy. For a dict it is the `.loss` of model(**dict).
    """
    if isinstance(batch.content, dict):
        return _own_loss(model, batch, loss)
    outputs, targets = batch.outputs(model), batch.content[1]
    if loss is None or loss is cross_entropy:
        return cross_entropy(outputs, targets)
    return scalar(_call(loss, outputs, targets))


def ignored_label(loss: Any) -> int | None:
    """Return the label that a loss ignores; None if there is none, or if it is unknown.

    Args:
        loss: a loss function; None for the cross-entropy, or the loss of the model itself.
    """
    if loss is None or loss is cross_entropy:
        return IGNORED
    given = loss.keywords.get("ignore_index") if isinstance(loss, partial) else None
    found = getattr(loss, "ignore_index", given)
    return found if isinstance(found, int) else None


def _call(loss: Loss, outputs: Any, targets: Any) -> Any:
    """Call the user's loss; if it fails, raise a ChitaError with the shapes of its arguments."""
    try:
        return loss(outputs, copied(targets))
    except (ChitaError, torch.cuda.OutOfMemoryError):
        raise
    except MISFITS as error:
        raise ChitaError(
            f"loss fails on outputs {_describe(outputs)} and targets {_describe(targets)}: "
            f"{type(error).__name__}: {error}"
        ) from error


def cross_entropy(outputs: Any, targets: Any, reduction: str = "mean") -> Tensor:
    """Compute the cross-entropy; raise a ChitaError if outputs and targets do not fit.

    Args:
        outputs: the outputs of the model, logits or an object that contains them.
        targets: labels or class probabilities; see `labels_for`.
        reduction: as in torch: "mean" for the mean over the samples, "none" for all values.
    """
    outputs = logits_of(outputs)
    if isinstance(outputs, Tensor) and outputs.ndim > 1 and outputs.shape[1] == 1:
        raise ChitaError(
            "the cross-entropy needs an output for each class, got outputs "
            f"{_describe(outputs)}; pass loss='bce_with_logits' for two classes, or loss='mse' "
            "for a regression"
        )
    try:
        targets = labels_for(outputs, targets)
        return functional.cross_entropy(outputs, targets, reduction=reduction)
    except torch.cuda.OutOfMemoryError:
        raise
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ChitaError(_misfit(outputs, targets, error)) from error


def labels_for(outputs: Any, targets: Any) -> Any:
    """Return labels (B, positions...) for outputs (B, classes, positions...).

    Labels of shape (B, 1, positions...) and truth values are converted; other targets are returned
    unchanged.
    """
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)) or outputs.ndim < 2:
        return targets
    if targets.is_floating_point():
        return targets
    if targets.shape == (outputs.shape[0], 1, *outputs.shape[2:]):
        targets = targets.squeeze(1)
    return targets.long() if targets.dtype == torch.bool else targets


def _misfit(outputs: Any, targets: Any, error: Exception) -> str:
    """Return an error message with the reason why the cross-entropy fails, and a remedy."""
    if "out of bounds" in str(error):  # torch's message contains the label
        classes = outputs.shape[1] if outputs.ndim > 1 else len(outputs)
        return f"labels must be from 0 to {classes - 1}, the classes of the outputs: {error}"
    remedy = "pass another loss=, such as loss='mse'"
    if isinstance(outputs, Tensor) and isinstance(targets, Tensor):
        counts = targets.numel() == outputs[:, :1].numel() if outputs.ndim > 1 else False
        if counts and targets.dtype not in (torch.int64, torch.uint8):
            remedy = (
                "convert labels of classes to int64, as by targets.long() or "
                f"targets.astype('int64'), or {remedy}"
            )
        elif targets.shape == outputs.shape and not targets.is_floating_point():
            remedy = (
                "convert one-hot vectors to labels, as by targets.argmax(1), or to class "
                f"probabilities, as by targets.float(), or {remedy}"
            )
    return (
        f"the cross-entropy does not accept outputs {_describe(outputs)} with targets "
        f"{_describe(targets)}; {remedy} ({error})"
    )


def row_losses(loss: Loss | None, outputs: Any, targets: Any, rows: int) -> Tensor:
    """Compute the loss of each of R mini-batches, (R,), from the outputs of all their samples.

    Args:
        loss: the loss of one mini-batch; None for the cross-entropy.
        outputs: the outputs of the model, tensors of shape (R * m, ...).
        targets: the targets of the same samples.
        rows: R.
    """
    if loss is None or loss is cross_entropy:
        return _row_cross_entropies(outputs, targets, rows)

    def by_row(nest: Any) -> Any:
        return map_tensors(lambda tensor: tensor.reshape(rows, -1, *tensor.shape[1:]), nest)

    outputs, targets = by_row(outputs), by_row(targets)
    try:
        return torch.func.vmap(loss)(outputs, copied(targets))
    except Exception:  # torch cannot vectorise it

        def row(nest: Any, r: int) -> Any:
            return map_tensors(lambda tensor: tensor[r], nest)

        return torch.stack(
            [scalar(_call(loss, row(outputs, r), row(targets, r))) for r in range(rows)]
        )


def _row_cross_entropies(outputs: Any, targets: Tensor, rows: int) -> Tensor:
    """Compute the mean cross-entropy of each of R mini-batches, (R,), in one pass."""
    each = cross_entropy(outputs, targets, reduction="none")
    counted = (
        torch.ones_like(each) if targets.is_floating_point() else (targets != IGNORED).to(each)
    )
    return each.reshape(rows, -1).sum(1) / counted.reshape(rows, -1).sum(1)


def scalar(value: Any) -> Tensor:
    """Return `value` if it is a scalar tensor; raise a ChitaError otherwise."""
    if not isinstance(value, Tensor) or value.ndim != 0 or value.is_complex():
        raise ChitaError(
            "loss must be a real scalar tensor for each mini-batch, got one "
            f"{_describe(value)}; return the mean of a tensor, with no .item()"
        )
    return value


def _own_loss(model: nn.Module, batch: Batch, loss: Loss | None) -> Tensor:
    if loss is not None:
        raise ChitaError(
            "loss= is for batches of (inputs, targets); for dicts, chita.prune uses the model's "
            ".loss: pass (dict, targets), leave out loss, or give chita.recover a teacher"
        )
    outputs = batch.outputs(model)
    value = getattr(outputs, "loss", None)
    if value is None:
        raise ChitaError(
            f"the model returned no .loss for a batch with the keys {', '.join(batch.inputs)} "
            f"(but an object {_describe(outputs)}); add labels, pass (inputs, targets), "
            "or calibrate without labels by loss='distill'"
        )
    return scalar(value)


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"of shape {tuple(value.shape)} ({value.dtype})"
    return f"of type {type(value).__name__}"


@torch.no_grad()
def mean_loss(model: nn.Module, batches: Any, loss: Loss | None = None) -> float:
    """Compute the mean loss over the samples of `batches`, in eval mode; NaN without samples.

    Samples whose labels are all ignored do not count.

    Args:
        model: any module.
        batches: the user's batches, or those of `SampleStream.take`.
        loss: as for `gradient_matrix`.
    """
    device, predicts = device_of(model), InputSpec.of(model).predicts
    ignored = ignored_label(loss)
    total, samples = 0.0, 0
    with evaluating(model):
        for given in read_batches(model, batches):
            batch = with_labels(given, ignored, predicts=predicts).to(device)
            if not batch.size:
                continue
            total += float(batch_loss(model, batch, loss)) * batch.size
            samples += batch.size
    return total / samples if samples else math.nan
