"""What the layers of a model take in: the second moments of their inputs, for L-OBS.

A Linear layer multiplies its weights with its inputs, a convolution with the windows of its inputs.
Only the i x i sums of x x^T are kept, added up as the layers are called.
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
from chita.errors import ChitaError
from chita.model.forward import evaluating
from chita.model.hooks import Owner, owners
from chita.model.losses import Loss, batch_loss
from chita.model.stream import SampleStream
from chita.model.weights import Weight, Weights

CHUNK = 64  # samples in a forward pass
WINDOW_ENTRIES = 1 << 24  # entries of the windows made at a time: 64 MiB in float32
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


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
    with evaluating(model), _watched(_layers(model, weights), sums):
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
        if isinstance(owner.module, (nn.Linear, *CONVOLUTIONS)) and "weight" in owner.owned
    ]
    known = {owner.owned["weight"].name for owner in found}
    for weight in weights:
        if weight.name not in known:
            raise ChitaError(
                f"l-obs prunes the weights of Linear and convolution layers, and {weight.name!r} "
                f"is none; leave it out with exclude={weight.name!r}"
            )
    return found


@contextmanager
def _watched(layers: list[Owner], sums: dict[str, _Sum]) -> Iterator[None]:
    """While the context lasts, what the layers take in is added to the sums of their weights."""

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
    """The inputs of a call, one for each time that it multiplies its weights: (groups, i, N)."""
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
