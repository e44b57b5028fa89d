"""Repair a pruned network without training, by forward passes only.

Two repairs are tried, one after the other: re-estimate the statistics of batch norm, and correct
the biases so that the mean pre-activations are those of the dense network. A repair is kept only if
the loss on held-out samples falls by more than two standard errors and the floor, if there is one,
still holds; otherwise the model is restored bit for bit. A loss that is not finite cannot fall.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.batch_norm import reestimate_batch_norm
from chita.model.forward import device_of, evaluating
from chita.model.hooks import Args, Keywords, owners, watching
from chita.model.layers import batch_norm_layers, channel_dim
from chita.model.samples.batch import Batch
from chita.model.weights import Weights
from chita.pruning.calibration import Calibration
from chita.pruning.held_out import PartLosses
from chita.pruning.rank_agreement import copy_from_first
from chita.pruning.result_rows import RepairRow
from chita.solver.ranks import ALONE, Ranks

logger = logging.getLogger(__name__)

REPAIR_SAMPLES, REPAIR_BATCH = 1024, 128  # the most samples, in total and in a forward pass

BATCH_NORM = "batch norm"
BIASES = "biases"

# (name of a layer, the layer, its output) -> a replacement of the output; None to keep it.
Watch = Callable[[str, nn.Module, Tensor], Tensor | None]
Means = dict[str, list[Tensor]]  # (channels,) for each call of a layer


class DenseMeans:
    """The mean outputs of the layers of a dense network, channel by channel.

    The layers are those with prunable weights and a bias: Linear, convolutions, and other layers
    that add the bias along the last dimension, such as Conv1D of transformers.

    Args:
        model: the model before pruning; it is run in eval mode and not changed.
        weights: its prunable weights.
        batches: calibration samples. They are kept to run the pruned network on the same samples.
    """

    def __init__(self, model: nn.Module, weights: Weights, batches: Sequence[Batch]) -> None:
        self.batches = batches
        modules = {owner.module for owner in owners(model, weights)}
        self._names = [
            name
            for name, module in model.named_modules()
            if module in modules and isinstance(getattr(module, "bias", None), nn.Parameter)
        ]
        self._means = [self._observe(model, batch) for batch in batches]

    def _observe(self, model: nn.Module, batch: Batch) -> Means:
        means: Means = {name: [] for name in self._names}

        def note(name: str, layer: nn.Module, output: Tensor) -> None:
            means[name].append(_channel_means(layer, output))

        _pass(model, batch, self._names, note)
        return means

    def biases(self, model: nn.Module) -> list[nn.Parameter]:
        """Return the biases of these layers in the model or in a copy of it."""
        return [_bias(model.get_submodule(name)) for name in self._names]

    def bias_shifts(self, model: nn.Module) -> dict[nn.Parameter, Tensor]:
        """Return the corrections of the biases of the pruned model, which is not changed.

        A layer that is called several times gets the mean of its shifts. Calls that the dense
        network did not make are ignored.
        """
        shifts: dict[nn.Parameter, _Mean] = {}

        def shift(name: str, layer: nn.Module, output: Tensor) -> Tensor | None:
            dense = next(waiting[name], None)
            if dense is None:
                return None
            difference = dense - _channel_means(layer, output)
            shifts.setdefault(_bias(layer), _Mean()).add(difference, output.numel())
            return output + _along_channels(layer, difference).to(output.dtype)

        for batch, means in zip(self.batches, self._means, strict=True):
            waiting = {name: iter(calls) for name, calls in means.items()}
            _pass(model, batch, self._names, shift)
        return {bias: mean.value() for bias, mean in shifts.items()}


class _Mean:
    """A running mean of tensors, each with a weight."""

    def __init__(self) -> None:
        self._total: Tensor | float = 0.0
        self._weight = 0

    def add(self, value: Tensor, weight: int) -> None:
        self._total = self._total + weight * value.double()
        self._weight += weight

    def value(self) -> Tensor:
        assert isinstance(self._total, Tensor)
        return self._total / self._weight


@torch.no_grad()
def _pass(model: nn.Module, batch: Batch, names: Sequence[str], watch: Watch) -> None:
    """Run the model on a batch, in eval mode, and call `watch` for the layers of these names."""

    by_layer = {model.get_submodule(name): name for name in names}

    def hook(layer: nn.Module, args: Args, keywords: Keywords, output: Any) -> Tensor | None:
        return watch(by_layer[layer], layer, output) if _has_channels(layer, output) else None

    with watching(by_layer, hook), evaluating(model):
        batch.to(device_of(model)).outputs(model)


def _bias(layer: nn.Module) -> nn.Parameter:
    assert isinstance(layer.bias, nn.Parameter)
    return layer.bias


def _has_channels(layer: nn.Module, output: Any) -> bool:
    """Return whether the bias was added to this output; an empty output has no mean."""
    dim = channel_dim(layer)
    return (
        isinstance(output, Tensor)
        and output.ndim >= -dim
        and output.numel() > 0
        and _bias(layer).shape == (output.shape[dim],)
    )


def _channel_means(layer: nn.Module, output: Tensor) -> Tensor:
    """Return the mean over samples and positions, (channels,)."""
    channels_last = output.movedim(channel_dim(layer), -1).flatten(end_dim=-2)
    return channels_last.mean(0, dtype=torch.promote_types(output.dtype, torch.float32))


def _along_channels(layer: nn.Module, values: Tensor) -> Tensor:
    """Return (channels,) values in a shape that broadcasts to the layer's output."""
    return values.reshape(-1, *[1] * (-1 - channel_dim(layer)))


def dense_means(model: nn.Module, weights: Weights, calibration: Calibration) -> DenseMeans:
    """Return the means of a model before pruning, over samples of A."""
    samples, batch = min(REPAIR_SAMPLES, calibration.rows * calibration.batch), calibration.batch
    size = min(REPAIR_BATCH, calibration.at_once, samples)
    size -= size % batch if size > batch else 0  # rows of A start at a mini-batch
    pieces = calibration.stream.pieces(samples // size * size, size)  # the model needs no targets
    return DenseMeans(model, weights, list(pieces))


def repair(
    model: nn.Module,
    dense: DenseMeans,
    losses_now: Callable[[], PartLosses],
    holds: Callable[[], bool],
    ranks: Ranks = ALONE,
) -> list[RepairRow]:
    """Repair a pruned model in place; zeros stay zeros, and no parameter is added.

    Batch norm comes first; biases then correct what remains. Rank 0 computes each repair, and the
    other ranks take it over: their samples may be others.

    Args:
        model: the pruned model, or a pruned copy.
        dense: the means of the dense network, with the calibration samples in batches of equal
            size; batch norm needs some dozens of samples in each.
        losses_now: computes the losses of the model on held-out samples.
        holds: checks whether the model satisfies the floor.
        ranks: the ranks, which all have the same model and the same losses.

    Returns:
        A row for each repair that applies to the model. A repair that fails, such as batch norm
        with one value per channel, has no row.
    """
    statistics = [buffer for layer in batch_norm_layers(model) for buffer in layer.buffers()]
    repairs = (
        (BATCH_NORM, statistics, lambda: reestimate_batch_norm(model, dense.batches)),
        (BIASES, dense.biases(model), lambda: correct_biases(model, dense)),
    )
    rows: list[RepairRow] = []
    losses: PartLosses | None = None
    for name, changed, change in repairs:
        if not changed:
            continue
        before = losses = losses_now() if losses is None else losses
        try:
            shared = partial(_change_first, ranks, changed, change)
            after, kept = _try(changed, shared, before, losses_now, holds)
        except ChitaError as error:
            logger.warning("the repair of %s is skipped: %s", name, error)
            continue
        losses = after if kept else before
        rows.append(RepairRow(name, before.mean, after.mean, kept))
        logger.info("%s", rows[-1])
    return rows


def _change_first(ranks: Ranks, changed: Sequence[Tensor], change: Callable[[], None]) -> None:
    """Make a change of some tensors on rank 0, and copy them to the others."""

    def attempt() -> str:
        try:
            change()
        except ChitaError as error:
            return str(error) or type(error).__name__
        return ""

    if message := ranks.from_first(attempt):
        raise ChitaError(message)
    copy_from_first(ranks, changed)


@torch.no_grad()
def correct_biases(model: nn.Module, dense: DenseMeans) -> None:
    """Correct the biases of a pruned model so that its layers have the means of the dense one."""
    for bias, shift in dense.bias_shifts(model).items():
        bias.add_(shift.to(bias.dtype))


@torch.no_grad()
def _try(
    changed: Sequence[Tensor],
    change: Callable[[], None],
    before: PartLosses,
    losses_now: Callable[[], PartLosses],
    holds: Callable[[], bool],
) -> tuple[PartLosses, bool]:
    """Return the losses after a change of some tensors, and whether it is kept; or undo it."""
    saved = [tensor.clone() for tensor in changed]
    kept = False
    try:
        change()
        after = losses_now()
        finite = math.isfinite(before.mean) and math.isfinite(after.mean)
        kept = finite and after.surely_below(before) and holds()
    finally:
        if not kept:
            for tensor, values in zip(changed, saved, strict=True):
                tensor.copy_(values)
    return after, kept
