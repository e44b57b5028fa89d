"""Bias correction: the mean pre-activations of the dense network, given back to the pruned one.

Pruning shifts the mean of what a layer hands on. A bias can take that shift back in closed form:

    b <- b + mean of (z_dense - z_pruned) over samples and positions,    z = W x + b.

One forward pass does it for all layers. As a batch passes, each layer is shifted to its dense mean
over that same batch, so that the layers behind it already see the correction; the bias then moves
by the mean of these shifts. With one batch the means come out exactly. With several they do up to
what differs from batch to batch, which is little, since the same samples are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from chita.model.axes import channel_dim
from chita.model.batch import Batch
from chita.model.hooks import owners
from chita.model.modes import device_of, evaluating
from chita.model.weights import Weights

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

    def watched(name: str) -> RemovableHandle:
        def hook(layer: nn.Module, _: Any, output: Any) -> Tensor | None:
            return watch(name, layer, output) if _has_channels(layer, output) else None

        return model.get_submodule(name).register_forward_hook(hook)

    handles = [watched(name) for name in names]
    try:
        with evaluating(model):
            batch.to(device_of(model)).outputs(model)
    finally:
        for handle in handles:
            handle.remove()


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
