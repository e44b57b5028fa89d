"""The second moments of the inputs of a group of layers, behind blocks that are pruned already.

With the weights from before the stage, a layer gets other inputs d than its present ones x, since
the layers before it are pruned. The mean of x d^T shows how the layer can undo some of that change
(`solver/layer_wise/dense_outputs.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from chita.curvature.layer_inputs import InputSum, columns_of, counted_tokens, each_call
from chita.model.forward import device_of
from chita.model.replay import Replay
from chita.model.samples.batch import Batch
from chita.model.sections import Group
from chita.model.weights import Weight

# The inputs of each layer in the order of its calls, by its place among the layers of a section.
LayerInputLists = dict[int, list[Tensor]]


class Moments(NamedTuple):
    """The moments of the inputs x of a layer.

    Attributes:
        inputs: the mean of x x^T, (groups, i, i) in float64.
        products: the mean of x d^T with the inputs d of the dense network; None if it was not
            measured.
    """

    inputs: Tensor
    products: Tensor | None


@torch.no_grad()
def section_inputs(
    replay: Replay, section: int, layers: Sequence[nn.Module], batch: Batch, before: Any
) -> tuple[LayerInputLists, Any]:
    """Run a section, and return the inputs of its layers and the output of the section.

    Args:
        replay: the sections of the model, which is in eval mode.
        section: the number of the section.
        layers: the layers.
        batch: the samples, on the device of the model.
        before: the output of the section before, as for `Replay.run`.
    """
    places = {layer: place for place, layer in enumerate(layers)}
    found: LayerInputLists = {place: [] for place in places.values()}

    def note(layer: nn.Module, x: Tensor, output: Tensor) -> None:
        found[places[layer]].append(x.clone())  # the model may change it in place

    with each_call(places, note):
        output = replay.run(section, batch, before)
    return found, output


@torch.no_grad()
def group_moments(
    replay: Replay,
    section: int,
    group: Group,
    pieces: Iterable[tuple[Batch, Any, LayerInputLists | None]],
    layers: Sequence[nn.Module],
) -> dict[str, Moments]:
    """Compute the moments of the inputs of a group of layers of one section.

    A forward pass ends as soon as the layers of the group are called.

    Args:
        replay: the sections of the model, which is in eval mode.
        section: the number of the section.
        group: the layers of the group.
        pieces: the samples, each with the output of the section before, as for `Replay.run`, and
            with the inputs of all layers of the section in the dense network; None to measure
            x x^T alone.
        layers: all layers of the section.

    Returns:
        The moments for each weight by name; layers with the same input share them.
    """
    by_input = [(shared, _PairedSum()) for shared in group]
    sums = {module: total for shared, total in by_input for module in shared.modules}
    calls = sum(shared.calls for shared in group) if all(s.calls for s in group) else None
    places = {layer: place for place, layer in enumerate(layers)}
    for batch, before, dense in pieces:
        waiting = {}
        if dense is not None and calls is not None:  # otherwise the calls depend on the sample
            waiting = {module: iter(dense[places[module]]) for module in sums}
        add = partial(_add, sums, waiting, counted_tokens(replay.model, batch))
        with each_call(sums, add, calls):
            replay.run(section, batch.to(device_of(replay.model)), before)
    return {
        weight.name: moments
        for shared, total in by_input
        for moments in (total.moments(shared.weights[0]),)
        for weight in shared.weights
    }


def _add(
    sums: Mapping[nn.Module, _PairedSum],
    waiting: Mapping[nn.Module, Iterator[Tensor]],
    counted: Tensor | None,
    layer: nn.Module,
    x: Tensor,
    output: Tensor,
) -> None:
    """Add the input of a call, and that of the same call in the dense network."""
    parts = columns_of(layer, x, output, counted)
    if layer in waiting:
        d = next(waiting[layer]).to(x.device)
        sums[layer].add_pairs(parts, columns_of(layer, d, output, counted))
    else:
        sums[layer].add_all(parts)


class _PairedSum(InputSum):
    """The sums of x x^T and of x d^T."""

    def __init__(self) -> None:
        super().__init__()
        self._products = InputSum()

    def add_pairs(self, x: Iterable[Tensor], d: Iterable[Tensor]) -> None:
        """Add inputs of a call, (groups, i, N) each, and those in the dense network."""
        for mine, theirs in zip(x, d, strict=True):
            self.add(mine)
            self._products.add(mine, theirs)

    def moments(self, weight: Weight) -> Moments:
        """Return the means over all inputs of the layer of this weight."""
        measured = self._products.count > 0
        return Moments(self.mean(weight), self._products.mean(weight) if measured else None)
