"""Rows of A: one by plain autograd, or many from one batched forward and backward pass."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from chita.curvature.per_sample.any_layer import any_layer
from chita.curvature.per_sample.registry import is_built_in, rule_for
from chita.curvature.weight_uses import known_weights
from chita.errors import ChitaError, describe_error
from chita.model.forward import differentiable, evaluating, logits_of, run_model
from chita.model.hooks import Call, NotSeparableError, Owner, captured
from chita.model.losses import Loss, batch_loss, row_losses
from chita.model.samples.batch import Batch, copied, tensors_of
from chita.model.weights import Weight, Weights
from chita.solver.matrix.in_memory import Place

logger = logging.getLogger(__name__)


class RuleError(Exception):
    """A gradient rule that a user registered fails; plain autograd has to be used."""


@dataclass(frozen=True)
class Row:
    """One row of A, or its entries for some of the weights.

    Attributes:
        loss: the loss of the mini-batch, a scalar.
        weights: the weights whose gradients were computed.
        gradients: one for each weight; None if the loss does not depend on it.
    """

    loss: Tensor
    weights: Sequence[Weight]
    gradients: tuple[Tensor | None, ...]

    def write(self, place: Place) -> None:
        """Write the gradients into the place of one row."""
        for weight, gradient in zip(self.weights, self.gradients, strict=True):
            if gradient is None:
                place.clear(weight.start, weight.stop)
            else:
                place.put(weight.start, gradient.reshape(-1, 1))


def plain_row(model: nn.Module, weights: Sequence[Weight], batch: Batch, loss: Loss | None) -> Row:
    """Differentiate the loss of one mini-batch by some of the prunable weights."""
    value = batch_loss(model, batch, loss)
    if not value.requires_grad:
        raise ChitaError(
            "the loss does not depend on the prunable weights: is the loss, or the output of the "
            "model, detached?"
        )
    gradients = dense_gradients(value, [weight.parameter for weight in weights])
    return Row(value.detach(), weights, gradients)


def dense_gradients(
    value: Tensor, inputs: Sequence[Tensor | GradientEdge]
) -> tuple[Tensor | None, ...]:
    """Differentiate the scalar `value` by each input; None where it does not depend on one.

    Embeddings with sparse=True have sparse gradients, which cannot be reshaped: make them dense.
    """
    given: Any = inputs  # torch accepts both kinds; its annotations do not
    found = torch.autograd.grad(value, given, allow_unused=True)
    return tuple(None if gradient is None else gradient.to_dense() for gradient in found)


def reached_weights(
    model: nn.Module, weights: Weights, batches: Iterable[Batch], loss: Loss | None, *, named: bool
) -> Weights:
    """Leave out the weights that no gradient reaches, and name them in a warning.

    Weights that the user selected by name stay. If the gradients of all weights are zero, the loss
    is flat around them and gradients cannot rank any: all stay.

    Args:
        model: any module.
        weights: its prunable weights.
        batches: calibration samples, as many as a stage uses, in mini-batches.
        loss: the loss of one mini-batch; None for the default.
        named: whether the user selected the weights by name.

    Raises:
        ChitaError: The loss does not depend on any of the weights, and they are not named.
    """
    missing = unreached(model, weights, batches, loss)
    if not missing:
        return weights
    names = ", ".join(missing)
    if named or (len(missing) == len(weights.entries) and any(missing.values())):
        logger.warning("no gradient of the loss reaches %s: pruning by magnitude alone", names)
        return weights
    if len(missing) == len(weights.entries):
        raise ChitaError(
            f"the loss does not depend on the prunable weights: no gradient reaches {names}; is "
            "the loss, or the output of the model, detached? method='magnitude' needs no gradients"
        )
    logger.warning(
        "no gradient of the loss reaches %s: they stay dense and do not count for the sparsity; "
        "name them in include, or use method='magnitude', to prune them by magnitude",
        names,
    )
    return weights.without(missing)


def unreached(
    model: nn.Module, weights: Weights, batches: Iterable[Batch], loss: Loss | None
) -> dict[str, bool]:
    """Find the weights whose gradients are zero, or do not exist, in all batches.

    The search ends with the first batch after which no such weight is left, normally the first one.

    Returns:
        For the name of each such weight, whether its gradients exist (and are zero).
    """
    missing = list(weights)
    flat: set[str] = set()
    none = torch.zeros((), dtype=torch.bool, device=weights.device)
    with evaluating(model), differentiable(weights):
        for batch in batches:
            found = plain_row(model, missing, batch.to(weights.device), loss).gradients
            reached = torch.stack([none if g is None else g.any() for g in found]).tolist()
            flat.update(w.name for w, g in zip(missing, found, strict=True) if g is not None)
            missing = [weight for weight, yes in zip(missing, reached, strict=True) if not yes]
            if not missing:
                break
    return {weight.name: weight.name in flat for weight in missing}


# The bytes that autograd may save for one chunk; gradients and windows need a few times as much.
CHUNK_BYTES = 128 << 20
GPU_SHARE = 1 / 8  # the share of free GPU memory; a small fixed amount leaves cores idle


@contextmanager
def saved_tensors(model: nn.Module) -> Iterator[dict[int, int]]:
    """Record the bytes of each tensor that autograd saves, except those of the model itself."""
    saved: dict[int, int] = {}
    own = {t.untyped_storage().data_ptr() for t in chain(model.parameters(), model.buffers())}

    def note(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor.detach()  # an output that refers to its own graph would never be freed

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield saved


def row_bytes(found: list[Owner], saved: dict[int, int]) -> int:
    """Return the bytes that one more row in a chunk needs.

    Args:
        found: the modules that own prunable weights. Modules without a gradient rule compute the
            gradients of all rows of the chunk at once.
        saved: the bytes of the tensors that autograd saved for one row.
    """
    whole = [
        weight.parameter.numel() * weight.parameter.element_size()
        for owner in found
        if rule_for(owner.module) is None
        for weight in owner.owned.values()
    ]
    return sum(saved.values()) + max(whole, default=0)


def rows_at_once(row_bytes: int, device: torch.device) -> int:
    """Return the number of rows in a chunk on `device`, at least 1."""
    room = CHUNK_BYTES
    if device.type == "cuda":
        room = int(torch.cuda.mem_get_info(device)[0] * GPU_SHARE)
    return max(1, room // max(1, row_bytes))


@dataclass(frozen=True)
class Chunk:
    """R rows of A that were written in one batched pass, with the data to check them.

    Attributes:
        outputs: the outputs of the model that the loss uses.
        losses: the losses of the mini-batches, (R,).
        signs: a random sign for each row, (R,).
        weights: the weights whose gradients were written.
        total: the gradient of losses @ signs by the weights that may be used outside their modules
            (see `weight_uses.py`), from the same backward pass. Autograd computes it without the
            rules, and the sum of the rows times their signs must equal it.
        called: the names of the weights whose module was called.
    """

    outputs: list[Tensor]
    losses: Tensor
    signs: Tensor
    weights: list[Weight]
    total: Row
    called: set[str]


def write_rows(
    model: nn.Module, found: list[Owner], batch: Batch, loss: Loss | None, place: Place
) -> Chunk:
    """Write the gradients of R mini-batches into A.

    Args:
        model: the model, in eval mode, with differentiable prunable weights.
        found: the modules that own the weights to differentiate by.
        batch: R * m samples.
        loss: the loss of one mini-batch.
        place: the place of these rows in A.
    """
    rows = place.columns.shape[1]
    assert isinstance(batch.content, tuple)
    inputs, targets = batch.content
    with captured(found) as calls:
        outputs = run_model(model, copied(inputs))
    losses = row_losses(loss, outputs, targets, rows)
    weights = list({w.name: w for owner in found for w in owner.owned.values()}.values())
    signs = _random_signs(losses)
    total = losses @ signs
    edges = [call.output for call in calls]
    known = known_weights(total, calls, weights)
    doubtful = [weight for weight in weights if weight.name not in known]
    both = dense_gradients(total, [*edges, *(weight.parameter for weight in doubtful)])
    gradients, by_weight = both[: len(edges)], both[len(edges) :]
    written: set[str] = set()
    with torch.no_grad():
        for call, gradient in zip(calls, gradients, strict=True):
            if gradient is not None:
                _check_call(call, batch.size)
                gradient = _signed(gradient.reshape(call.shape), signs)
                _write_call(call, gradient, place, written)
        for weight in weights:
            if weight.name not in written:
                place.clear(weight.start, weight.stop)
    called = {w.name for call in calls for w in call.owner.owned.values()}
    row = Row(total.detach(), doubtful, by_weight)
    return Chunk(seen_outputs(outputs, loss), losses.detach(), signs, weights, row, called)


def seen_outputs(outputs: Any, loss: Loss | None) -> list[Tensor]:
    """Return the tensors that the loss receives, detached."""
    return [t.detach() for t in tensors_of(logits_of(outputs) if loss is None else outputs)]


def _random_signs(losses: Tensor) -> Tensor:
    """Draw 1 or -1 for each row, (R,).

    If all rows point in the same direction, their sum is much larger than a row, and its rounding
    errors would hide a wrong row. With random signs the sum is about as large as the rows.
    """
    generator = torch.Generator().manual_seed(len(losses))
    return (2 * torch.randint(2, losses.shape, generator=generator) - 1).to(losses)


def _signed(gradient: Tensor, signs: Tensor) -> Tensor:
    """Multiply the samples, (R * m, ...), by the signs of their rows, (R,)."""
    factors = signs.to(gradient.dtype).repeat_interleave(len(gradient) // len(signs))
    return gradient * factors.reshape(-1, *[1] * (gradient.ndim - 1))


def _check_call(call: Call, samples: int) -> None:
    """Check that dimension 0 of all tensors of a call is the samples, and that none has changed."""
    call.check_unchanged()
    shapes = [call.shape, *(tensor.shape for tensor in tensors_of((call.args, call.keywords)))]
    if any(shape[:1] != (samples,) for shape in shapes):
        raise NotSeparableError(
            f"dimension 0 of the tensors of {type(call.owner.module).__name__} is not the samples"
        )


def _write_call(call: Call, gradient: Tensor, place: Place, written: set[str]) -> None:
    """Write the gradients of a call; add those of further calls of the same module."""
    rule = rule_for(call.owner.module)
    try:
        for piece in (rule or any_layer)(call, gradient, place.columns.shape[1]):
            weight = call.owner.owned[piece.name]
            write = place.add if weight.name in written else place.put
            write(weight.start + piece.start, piece.columns)
    except NotSeparableError:
        raise
    except Exception as error:
        if rule is None or is_built_in(rule):
            raise
        name = type(call.owner.module).__name__
        raise RuleError(f"the gradient rule of {name} fails: {describe_error(error)}") from error
    written.update(weight.name for weight in call.owner.owned.values())
