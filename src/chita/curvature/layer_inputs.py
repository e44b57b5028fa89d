"""The second moments of the inputs of each layer, for methods that work layer by layer.

A Linear layer multiplies its weights by its inputs, a convolution by the windows of its inputs.
Only the i x i sums of x x^T are stored; they grow as the layers are called. Tokens that the
attention mask of a batch excludes do not count.

`chita.prune` measures a network section by section instead, behind sections that are pruned already
(`block_moments.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from chita.curvature.source import CurvatureSource, LocalModel, no_rows
from chita.errors import ChitaError
from chita.model.forward import attention_mask, evaluating
from chita.model.hooks import Args, Keywords, Owner, first_input, owners, watching
from chita.model.layers import kind_of
from chita.model.losses import Loss, batch_loss
from chita.model.replay import StopPassError
from chita.model.samples.batch import Batch
from chita.model.samples.stream import SampleStream
from chita.model.token_models import has_decoder
from chita.model.weights import Weight, Weights, weight_axes
from chita.solver.precision import own_precision

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
    """The second moments of the layers' inputs over the calibration samples, without gradients.

    All layers are measured at once, in the network before pruning, as L-OBS defines it.
    """

    def at(self, w0: Tensor) -> LocalModel:
        """Return the moments, and the mean loss, at w0, (p,); A has no rows."""
        given = self.sampled
        for name, axes in weight_axes(given.model, given.weights).items():
            if axes.inputs_before > 1:
                raise ChitaError(
                    f"{name!r} is stored with its inputs first, but its moments belong to a weight "
                    f"with its outputs first; leave it out with exclude={name!r}"
                )
        found = input_moments(
            given.model, given.weights, given.stream, samples=given.samples, loss=given.loss
        )
        return LocalModel(no_rows(w0), found.loss, given.alpha, moments=found.moments)


class BlockInputs(LayerInputs):
    """The second moments of the inputs of one block after the other.

    The blocks before it are pruned already (`pruning/block_by_block/`).
    """

    by_block = True


class DenseOutputs(BlockInputs):
    """The same, and their products with the inputs in the dense network.

    With them a layer keeps the outputs of the dense network, and not only those of its own inputs.
    """

    dense_outputs = True


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
    names = {o.module: o.owned["weight"].name for o in measurable_layers(model, weights)}
    by_name = {weight.name: InputSum() for weight in weights}
    sums = {module: by_name[name] for module, name in names.items()}
    total = 0.0

    with evaluating(model):
        for batch in stream.take(samples, min(CHUNK, stream.at_once())):
            with each_call(sums, partial(_add, sums, counted_tokens(model, batch))):
                total += float(batch_loss(model, batch.to(weights.device), loss)) * batch.size
    if not math.isfinite(total):
        raise ChitaError("the loss is not finite: the model and the data must give finite losses")
    moments = tuple(by_name[weight.name].mean(weight) for weight in weights)
    return InputMoments(moments, total / samples)


def counted_tokens(model: nn.Module, batch: Batch) -> Tensor | None:
    """Return which tokens of a batch the attention mask includes, (B, L) bool; None if unknown.

    With an encoder and a decoder it is unknown: each has positions of its own.
    """
    mask = None if has_decoder(model) else attention_mask(model, batch.inputs)
    return None if mask is None else mask != 0


class InputSum:
    """The sum of x d^T over the inputs so far, or of x x^T.

    Attributes:
        count: the number of inputs.
    """

    def __init__(self) -> None:
        self._total: Tensor | None = None
        self.count = 0

    def add(self, x: Tensor, d: Tensor | None = None) -> None:
        """Add N inputs, (groups, i, N) each; without d, the sum is that of x x^T."""
        with own_precision():  # the forward pass may run in bfloat16
            product = (x @ (x if d is None else d).mT).double()
        self._total = product if self._total is None else self._total.add_(product)
        self.count += x.shape[-1]

    def add_all(self, parts: Iterable[Tensor]) -> None:
        """Add inputs in parts."""
        for part in parts:
            self.add(part)

    def mean(self, weight: Weight) -> Tensor:
        """Return the mean for the layer of this weight."""
        if self._total is not None and not self.count:
            raise ChitaError(
                f"the inputs of {weight.name!r} are padding alone: attention_mask must be 1 at "
                "some tokens of the calibration samples"
            )
        if self._total is None:
            raise ChitaError(
                f"the layer of {weight.name!r} is never called as a module, so that its inputs "
                f"cannot be measured; leave it out with exclude={weight.name!r}"
            )
        return self._total / self.count


def measurable_layers(model: nn.Module, weights: Weights) -> list[Owner]:
    """Return the Linear and convolution layers that own the prunable weights.

    Raises:
        ChitaError: A prunable weight is not that of such a layer.
    """
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


def _add(
    sums: Mapping[nn.Module, InputSum],
    counted: Tensor | None,
    layer: nn.Module,
    x: Tensor,
    output: Tensor,
) -> None:
    sums[layer].add_all(columns_of(layer, x, output, counted))


def each_call(
    layers: Collection[nn.Module],
    use: Callable[[nn.Module, Tensor, Tensor], None],
    calls: int | None = None,
) -> AbstractContextManager[None]:
    """Within the context, pass each call of some layers to a function.

    Args:
        layers: the layers.
        use: called with a layer, its input and its output.
        calls: after so many calls the forward pass is stopped; None for no limit.
    """
    done = 0

    def note(layer: nn.Module, args: Args, keywords: Keywords, output: Tensor) -> None:
        nonlocal done
        use(layer, first_input(args, keywords), output)
        done += 1
        if done == calls:
            raise StopPassError

    return watching(layers, note)


def columns_of(
    layer: nn.Module, x: Tensor, output: Tensor, counted: Tensor | None
) -> Iterator[Tensor]:
    """Return the inputs of a call as columns, (groups, i, N), in one or several parts.

    Args:
        layer: a Linear or convolution layer.
        x: its input.
        output: its output, or another tensor of the same shape.
        counted: which tokens count, (B, L) bool; None if all do.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if counted is not None and x.ndim == 3 and x.shape[:2] == counted.shape:
        x = x[counted.to(x.device)]
    columns = kind_of(layer).columns
    assert columns is not None
    return iter(columns(layer, x, output))
