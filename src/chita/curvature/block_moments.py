"""The second moments of the inputs of a group of layers, behind blocks that are pruned already.

With the weights from before the stage, a layer gets other inputs d than its present ones x, since
the layers before it are pruned. The mean of x d^T shows how the layer can undo some of that change
(`solver/layer_wise/dense_outputs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from chita.curvature.layer_inputs import InputSum, counted_tokens, each_input
from chita.model.forward import device_of
from chita.model.replay import Replay
from chita.model.samples.batch import Batch
from chita.model.sections import Group
from chita.model.weights import Weight

Pieces = Iterable[tuple[Batch, object, object]]
Dense = Callable[[], AbstractContextManager[None]]  # the weights from before the stage, for a while


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
def group_moments(
    replay: Replay, section: int, group: Group, pieces: Pieces, dense: Dense | None = None
) -> dict[str, Moments]:
    """Compute the moments of the inputs of a group of layers of one section.

    A forward pass ends as soon as the layers of the group are called.

    Args:
        replay: the sections of the model, which is in eval mode.
        section: the number of the section.
        group: the layers.
        pieces: the samples, each with the output of the section before, as for `Replay.run`, and
            with the same output of the dense network.
        dense: gives the model its weights from before the stage; None to measure x x^T alone.

    Returns:
        The moments for each weight by name; layers with the same input share them.
    """
    by_input = [(shared, _PairedSum()) for shared in group]
    sums = {module: total for shared, total in by_input for module in shared.modules}
    calls = sum(shared.calls for shared in group) if all(s.calls for s in group) else None

    def add(layer: nn.Module, x: Tensor) -> None:
        sums[layer].add(x)

    def add_paired(layer: nn.Module, x: Tensor) -> None:
        sums[layer].add(x)
        sums[layer].wait(x)

    def match(layer: nn.Module, d: Tensor) -> None:
        sums[layer].match(d)

    # Where the calls depend on the sample, inputs of the two networks have no pairs.
    paired = dense if calls is not None else None
    for given, before, dense_before in pieces:
        batch, counted = given.to(device_of(replay.model)), counted_tokens(replay.model, given)
        with each_input(sums, counted, add if paired is None else add_paired, calls):
            replay.run(section, batch, before)
        if paired is not None:
            with paired(), each_input(sums, counted, match, calls):
                replay.run(section, batch, dense_before)
    return {
        weight.name: moments
        for shared, total in by_input
        for moments in (total.moments(shared.weights[0]),)
        for weight in shared.weights
    }


class _PairedSum(InputSum):
    """The sums of x x^T and of x d^T."""

    def __init__(self) -> None:
        super().__init__()
        self._products = InputSum()
        self._waiting: list[Tensor] = []

    def wait(self, x: Tensor) -> None:
        """Keep inputs, (groups, i, N), until those of the dense network come."""
        self._waiting.append(x)

    def match(self, d: Tensor) -> None:
        """Add the dense inputs, (groups, i, N), of the first call that waits."""
        self._products.add(self._waiting.pop(0), d)

    def moments(self, weight: Weight) -> Moments:
        """Return the means over all inputs of the layer of this weight."""
        measured = self._products.count > 0
        return Moments(self.mean(weight), self._products.mean(weight) if measured else None)
