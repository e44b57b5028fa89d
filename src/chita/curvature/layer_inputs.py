"""The second moments of the inputs of each layer, for methods that work layer by layer (L-OBS).

A Linear layer multiplies its weights by its inputs, a convolution by the windows of its inputs.
Only the i x i sums of x x^T are stored; they grow as the layers are called.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chita.curvature.per_sample.conv2d import padded, windows
from chita.curvature.source import CurvatureSource, LocalModel, no_rows
from chita.errors import ChitaError
from chita.model.hooks import Owner, owners
from chita.model.losses import Loss, batch_loss
from chita.model.modes import evaluating
from chita.model.stream import SampleStream
from chita.model.weights import Weight, Weights

CHUNK = 64  # samples in a forward pass
WINDOW_ENTRIES = 1 << 24  # entries of the windows made at a time: 64 MiB in float32
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class InputMoments:
    """The mean of x x^T for each prunable weight, (groups, i, i) in float64, and the mean loss.

    `groups` is 1 except for grouped convolutions, whose outputs depend on the inputs of their group
    only.
    """

    moments: tuple[Tensor, ...]
    loss: float


class LayerInputs(CurvatureSource):
    """The second moments of the layers' inputs over the calibration samples, without gradients."""

    def at(self, w0: Tensor) -> LocalModel:
        """Return the moments, and the mean loss, at w0, (p,); A has no rows."""
        given = self.sampled
        found = input_moments(
            given.model, given.weights, given.stream, samples=given.samples, loss=given.loss
        )
        return LocalModel(no_rows(w0), found.loss, given.alpha, moments=found.moments)


@torch.no_grad()
def input_moments(
    model: nn.Module,
    weights: Weights,
    stream: SampleStream,
    *,
    samples: int,
    loss: Loss | None = None,
) -> InputMoments:
    """Compute the second moments of the inputs of all layers, over the next `samples` samples.

    The model runs in eval mode and keeps its state. All calls of a layer count.

    Args:
        model: any module.
        weights: its prunable weights, those of Linear and convolution layers.
        stream: the samples.
        samples: the number of samples to read.
        loss: the loss of a batch; the cross-entropy by default.

    Raises:
        ChitaError: A prunable weight is not that of a Linear or convolution layer, its layer is
            never called, or the loss is not finite.
    """
    sums = {weight.name: _Sum() for weight in weights}
    total = 0.0
    with evaluating(model), _watched(_layers(model, weights), sums):
        for batch in stream.take(samples, CHUNK):
            total += float(batch_loss(model, batch.to(weights.device), loss)) * batch.size
    if not math.isfinite(total):
        raise ChitaError("the loss is not finite: the model and the data must give finite losses")
    moments = tuple(sums[weight.name].mean(weight) for weight in weights)
    return InputMoments(moments, total / samples)


class _Sum:
    """The sum of x x^T over the inputs so far."""

    def __init__(self) -> None:
        self._total: Tensor | None = None
        self._count = 0

    def add(self, x: Tensor) -> None:
        """Add N inputs, (groups, i, N)."""
        product = (x @ x.mT).double()
        self._total = product if self._total is None else self._total.add_(product)
        self._count += x.shape[-1]

    def mean(self, weight: Weight) -> Tensor:
        if self._total is None:
            raise ChitaError(
                f"the layer of {weight.name!r} is never called as a module, so that its inputs "
                f"cannot be measured; leave it out with exclude={weight.name!r}"
            )
        return self._total / self._count


def _layers(model: nn.Module, weights: Weights) -> list[Owner]:
    """Return the Linear and convolution layers that own the prunable weights."""
    found = [
        owner
        for owner in owners(model, weights)
        if isinstance(owner.module, (nn.Linear, *CONVOLUTIONS)) and "weight" in owner.owned
    ]
    known = {owner.owned["weight"].name for owner in found}
    for weight in weights:
        if weight.name not in known:
            raise ChitaError(
                f"the inputs of Linear and convolution layers are measured, and {weight.name!r} is "
                f"not the weight of one; leave it out with exclude={weight.name!r}"
            )
    return found


@contextmanager
def _watched(layers: list[Owner], sums: dict[str, _Sum]) -> Iterator[None]:
    """Within the context, add the inputs of the layers to the sums of their weights."""

    def watch(owner: Owner) -> Any:
        def note(
            module: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any], output: Tensor
        ) -> None:
            given = args[0] if args else keywords["input"]
            for x in _as_columns(module, given, output):
                sums[owner.owned["weight"].name].add(x)

        return owner.module.register_forward_hook(note, with_kwargs=True)

    handles = [watch(owner) for owner in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _as_columns(layer: nn.Module, x: Tensor, output: Tensor) -> Iterator[Tensor]:
    """Yield the inputs that a call multiplies its weights by, (groups, i, N) at a time."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if isinstance(layer, nn.Linear):
        yield x.reshape(1, -1, x.shape[-1]).mT
        return
    assert isinstance(layer, CONVOLUTIONS)
    size = output.shape[-len(layer.kernel_size) :]
    window = layer.in_channels * math.prod(layer.kernel_size) * math.prod(size)
    images = padded(layer, x.reshape(-1, *x.shape[-len(size) - 1 :]))
    for part in torch.split(images, max(1, WINDOW_ENTRIES // window)):
        yield windows(layer, part[None], size)[0]
