"""Repair without training: forward passes correct what pruning has shifted.

Two repairs are tried, one after the other: the statistics of batch norm are estimated anew, and
biases restore the dense network's mean pre-activations. Each stays only if the loss on held-out
samples falls by more than two standard errors and the floor, if there is one, still holds;
otherwise the model keeps its values, bit for bit.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.files.finite import finite_or_none
from chita.model.batch import Batch
from chita.model.batch_norm import batch_norm_layers, reestimate_batch_norm
from chita.model.forward import device_of, evaluating
from chita.model.hooks import Args, Keywords, owners, watching
from chita.model.layers import channel_dim
from chita.model.weights import Weights
from chita.pruning.calibration import Calibration
from chita.pruning.held_out import PartLosses

logger = logging.getLogger(__name__)


# (the layer's name, the layer, its output) -> what it hands on instead; None for the output itself.
Watch = Callable[[str, nn.Module, Tensor], Tensor | None]
Means = dict[str, list[Tensor]]  # (channels,) for each call of a layer


class DenseMeans:
    """What the layers of a dense network hand on in the mean, channel by channel.

    Watched are the layers that hold prunable weights and a bias: Linear, convolutions and what else
    adds its bias along its last dimension, as transformers' Conv1D does.

    Args:
        model: not yet pruned; run in eval mode, forward only, and left as it was.
        weights: its prunable weights.
        batches: calibration samples. They are kept: the pruned network is to see the same ones.
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
        """Those of the watched layers, in the model itself or a copy of it."""
        return [_bias(model.get_submodule(name)) for name in self._names]

    def bias_shifts(self, model: nn.Module) -> dict[nn.Parameter, Tensor]:
        """What to add to the biases of the pruned model, which stays as it is.

        A layer that is called several times gets the mean of its shifts. A call that the dense
        network did not make counts for nothing.
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
    """Run the model on a batch, in eval mode, with the layers of these names watched."""

    by_layer = {model.get_submodule(name): name for name in names}

    def hook(layer: nn.Module, args: Args, keywords: Keywords, output: Any) -> Tensor | None:
        return watch(by_layer[layer], layer, output) if _has_channels(layer, output) else None

    with watching(by_layer, hook), evaluating(model):
        batch.to(device_of(model)).outputs(model)


def _bias(layer: nn.Module) -> nn.Parameter:
    assert isinstance(layer.bias, nn.Parameter)
    return layer.bias


def _has_channels(layer: nn.Module, output: Any) -> bool:
    """Whether the output is one that the bias was added to; an empty one has no mean."""
    dim = channel_dim(layer)
    return (
        isinstance(output, Tensor)
        and output.ndim >= -dim
        and output.numel() > 0
        and _bias(layer).shape == (output.shape[dim],)
    )


def _channel_means(layer: nn.Module, output: Tensor) -> Tensor:
    """The mean over samples and positions, (channels,)."""
    channels_last = output.movedim(channel_dim(layer), -1).flatten(end_dim=-2)
    return channels_last.mean(0, dtype=torch.promote_types(output.dtype, torch.float32))


def _along_channels(layer: nn.Module, values: Tensor) -> Tensor:
    """(channels,) values in a shape that adds to the layer's output."""
    return values.reshape(-1, *[1] * (-1 - channel_dim(layer)))


REPAIR_SAMPLES, REPAIR_BATCH = 1024, 128  # at most, and in a forward pass

BATCH_NORM = "batch norm"
BIASES = "biases"


@dataclass(frozen=True)
class RepairRow:
    """One repair that was tried.

    Attributes:
        repair: "batch norm" or "biases".
        loss_before: on the held-out samples.
        loss_after: with the repair.
        kept: whether it was better, and no floor was broken.
    """

    repair: str
    loss_before: float
    loss_after: float
    kept: bool

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        before, after = finite_or_none(self.loss_before), finite_or_none(self.loss_after)
        return {**asdict(self), "loss_before": before, "loss_after": after}


def dense_means(model: nn.Module, weights: Weights, calibration: Calibration) -> DenseMeans:
    """What the model, not yet pruned, is to be repaired by: its means over samples of A."""
    samples, batch = min(REPAIR_SAMPLES, calibration.rows * calibration.batch), calibration.batch
    size = min(REPAIR_BATCH, calibration.at_once, samples)
    size -= size % batch if size > batch else 0  # the rows of A begin where a mini-batch does
    return DenseMeans(model, weights, list(calibration.stream.take(samples // size * size, size)))


def repair(
    model: nn.Module,
    dense: DenseMeans,
    losses_now: Callable[[], PartLosses],
    holds: Callable[[], bool],
) -> list[RepairRow]:
    """Repair a pruned model in place; zeros stay zeros, and no parameter is added.

    Batch norm comes first: what it takes back, biases need not.

    Args:
        model: pruned since `dense` was gathered, or a pruned copy.
        dense: the dense network's means, with the calibration samples, in batches of equal size;
            batch norm needs some dozens of samples in each.
        losses_now: the losses of the model as it is, on held-out samples.
        holds: whether the model as it is keeps to the floor.

    Returns:
        A row for each repair that there was something to do for; one that cannot be done, such as
        batch norm's with one value for each channel, has none.
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
            after, kept = _try(changed, change, before, losses_now, holds)
        except ChitaError as error:
            logger.warning("the repair of %s is left out: %s", name, error)
            continue
        losses = after if kept else before
        rows.append(RepairRow(name, before.mean, after.mean, kept))
        logger.info("%s", rows[-1])
    return rows


@torch.no_grad()
def correct_biases(model: nn.Module, dense: DenseMeans) -> None:
    """Move the biases of a pruned model so that its layers have the dense network's means."""
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
    """The losses after a change of some tensors, and whether it stays; if not, it is undone."""
    saved = [tensor.clone() for tensor in changed]
    kept = False
    try:
        change()
        after = losses_now()
        kept = math.isfinite(after.mean) and after.surely_below(before) and holds()
    finally:
        if not kept:
            for tensor, values in zip(changed, saved, strict=True):
                tensor.copy_(values)
    return after, kept
