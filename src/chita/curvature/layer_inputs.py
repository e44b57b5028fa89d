"""The second moments of the inputs of each layer, for methods that work layer by layer (L-OBS).

A Linear layer multiplies its weights by its inputs, a convolution by the windows of its inputs.
Only the i x i sums of x x^T are stored; they grow as the layers are called.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chita.curvature.source import CurvatureSource, LocalModel, no_rows
from chita.errors import ChitaError
from chita.model.forward import evaluating
from chita.model.hooks import Args, Keywords, Owner, first_input, owners, watching
from chita.model.layers import kind_of
from chita.model.losses import Loss, batch_loss
from chita.model.sample_stream import SampleStream
from chita.model.weights import Weight, Weights

CHUNK = 64  # samples in a forward pass


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
    with evaluating(model), _summed(_layers(model, weights), sums):
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
        if kind_of(owner.module).columns is not None and "weight" in owner.owned
    ]
    known = {owner.owned["weight"].name for owner in found}
    for weight in weights:
        if weight.name not in known:
            raise ChitaError(
                f"the inputs of Linear and convolution layers are measured, and {weight.name!r} is "
                f"not the weight of one; leave it out with exclude={weight.name!r}"
            )
    return found


def _summed(layers: list[Owner], sums: dict[str, _Sum]) -> AbstractContextManager[None]:
    """Within the context, add the inputs of the layers to the sums of their weights."""
    names = {owner.module: owner.owned["weight"].name for owner in layers}

    def add(layer: nn.Module, args: Args, keywords: Keywords, output: Tensor) -> None:
        x = first_input(args, keywords)
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        columns = kind_of(layer).columns
        assert columns is not None
        for part in columns(layer, x, output):
            sums[names[layer]].add(part)

    return watching(names, add)
