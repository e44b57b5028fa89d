"""What the layers of a model take in: the second moments of their inputs, for L-OBS.

A Linear layer multiplies its weights with its inputs, a convolution with the windows of its inputs.
Only the i x i sums of x x^T are kept, added up as the layers are called.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.forward import evaluating
from chita.model.hooks import Args, Keywords, Owner, first_input, owners, watching
from chita.model.layers import kind_of
from chita.model.losses import Loss, batch_loss
from chita.model.stream import SampleStream
from chita.model.weights import Weight, Weights

CHUNK = 64  # samples in a forward pass


@dataclass(frozen=True)
class Inputs:
    """For each prunable weight the mean of x x^T, (groups, i, i) in float64; and the mean loss."""

    moments: list[Tensor]
    loss: float


@torch.no_grad()
def layer_inputs(
    model: nn.Module,
    weights: Weights,
    stream: SampleStream,
    *,
    samples: int,
    loss: Loss | None = None,
) -> Inputs:
    """The second moments of the inputs of all layers, over the next `samples` samples.

    The model is run in eval mode and left as it was. A layer that is called more than once counts
    with all its calls.

    Raises:
        ChitaError: a prunable weight is not that of a Linear or convolution layer, or its layer is
            never called; a loss that is not finite.
    """
    sums = {weight.name: _Sum() for weight in weights}
    total = 0.0
    with evaluating(model), _summed(_layers(model, weights), sums):
        for batch in stream.take(samples, CHUNK):
            total += float(batch_loss(model, batch.to(weights.device), loss)) * batch.size
    if not math.isfinite(total):
        raise ChitaError("the loss is not finite: the model and the data must give finite losses")
    return Inputs([sums[weight.name].mean(weight) for weight in weights], total / samples)


class _Sum:
    """The sum of x x^T over the inputs seen so far."""

    def __init__(self) -> None:
        self._total: Tensor | None = None
        self._count = 0

    def add(self, x: Tensor) -> None:
        """Inputs as (groups, i, N)."""
        product = (x @ x.mT).double()
        self._total = product if self._total is None else self._total.add_(product)
        self._count += x.shape[-1]

    def mean(self, weight: Weight) -> Tensor:
        if self._total is None:
            raise ChitaError(
                f"the layer of {weight.name!r} is never called by itself, so that l-obs cannot see "
                f"its inputs; leave it out with exclude={weight.name!r}"
            )
        return self._total / self._count


def _layers(model: nn.Module, weights: Weights) -> list[Owner]:
    """The Linear and convolution layers that hold the prunable weights."""
    found = [
        owner
        for owner in owners(model, weights)
        if kind_of(owner.module).columns is not None and "weight" in owner.owned
    ]
    known = {owner.owned["weight"].name for owner in found}
    for weight in weights:
        if weight.name not in known:
            raise ChitaError(
                f"l-obs prunes the weights of Linear and convolution layers, and {weight.name!r} "
                f"is none; leave it out with exclude={weight.name!r}"
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
