"""The fast way: many rows of A from one batched forward and backward pass.

The backward pass gives only the gradients by the outputs of the layers; from these and the inputs
the rule of each layer makes the gradients by its weights, a row for each mini-batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from chita.batch import Batch, tensors_of
from chita.gradients import conv2d, linear  # noqa: F401  (their rules register themselves)
from chita.gradients.capture import Call, NotSeparableError, Owner, captured
from chita.gradients.general import general
from chita.gradients.losses import Loss, row_losses
from chita.gradients.rules import rule_for
from chita.outputs import run_model
from chita.storage.target import Place


def write_rows(
    model: nn.Module, found: list[Owner], batch: Batch, loss: Loss | None, place: Place
) -> tuple[Tensor, set[str]]:
    """Write the gradients of R mini-batches into A.

    Args:
        model: in eval mode, its prunable weights differentiable.
        found: those of its modules that own the weights whose gradients are asked for.
        batch: R * m samples.
        loss: of one mini-batch.
        place: of these rows in A.

    Returns:
        The losses of the mini-batches, (R,), and the names of the weights whose module was called.
    """
    rows = place.columns.shape[1]
    assert isinstance(batch.content, tuple)
    inputs, targets = batch.content
    with captured(found) as calls:
        outputs = run_model(model, inputs)
    losses = row_losses(loss, outputs, targets, rows)
    edges = [call.output for call in calls]
    gradients = torch.autograd.grad(losses.sum(), edges, allow_unused=True)
    written: set[str] = set()
    with torch.no_grad():
        for call, gradient in zip(calls, gradients, strict=True):
            if gradient is not None:
                _check_call(call, batch.size)
                _write_call(call, gradient.reshape(call.shape), place, written)
        for weight in (weight for owner in found for weight in owner.owned.values()):
            if weight.name not in written:
                place.clear(weight.start, weight.stop)
    return losses.detach(), {w.name for call in calls for w in call.owner.owned.values()}


def _check_call(call: Call, samples: int) -> None:
    """The samples must be dimension 0 of all the call saw, and be what they were then."""
    call.check_unchanged()
    shapes = [call.shape, *(tensor.shape for tensor in tensors_of((call.args, call.keywords)))]
    if any(shape[:1] != (samples,) for shape in shapes):
        raise NotSeparableError(
            f"dimension 0 of what {type(call.owner.module).__name__} sees is not the samples"
        )


def _write_call(call: Call, gradient: Tensor, place: Place, written: set[str]) -> None:
    """The first gradient of a weight is written, those of further calls are added."""
    apply = rule_for(call.owner.module) or general
    for piece in apply(call, gradient, place.columns.shape[1]):
        weight = call.owner.owned[piece.name]
        write = place.add if weight.name in written else place.put
        write(weight.start + piece.start, piece.columns)
    written.update(weight.name for weight in call.owner.owned.values())
