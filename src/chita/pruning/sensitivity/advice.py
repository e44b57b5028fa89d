"""Advise which layers to keep dense or to limit, from the curves of `chita.sensitivity`.

The predicted increase of the loss, with layer l at sparsity s_l, is the sum of the increases of all
layers. If a layer is limited, the others get more zeros, so that the total sparsity stays the same.
The limit is worthwhile if the sum still falls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from chita.errors import ChitaError
from chita.pruning.sensitivity.result import LayerCurve, SensitivityResult

WORTH = 0.1  # the fraction of the increase that a limit must remove


@dataclass(frozen=True)
class Limit:
    """A layer that should be pruned less than the others.

    Attributes:
        layer: the name of the layer.
        sparsity: its highest sparsity; 0 to keep it dense.
        reason: the reason, with numbers.
    """

    layer: str
    sparsity: float
    reason: str


@dataclass(frozen=True)
class Advice:
    """Limits for pruning to one sparsity.

    Attributes:
        sparsity: the sparsity of all weights together.
        limits: the limits, the most effective one first.
        before: the predicted increase of the loss with the same sparsity in every layer.
        after: the predicted increase with the limits.
    """

    sparsity: float
    limits: tuple[Limit, ...]
    before: float
    after: float

    def __str__(self) -> str:
        if not self.limits:
            return (
                f"At {self.sparsity:.0%} sparsity no layer stands out: no limit would lower the "
                f"predicted rise of the loss ({self.before:.3g}) by a tenth."
            )
        options = " ".join(f"--at-most '{x.layer}={x.sparsity:g}'" for x in self.limits)
        return "\n".join(
            [
                *(limit.reason for limit in self.limits),
                f"At {self.sparsity:.0%} sparsity the predicted rise of the loss is then "
                f"{self.after:.3g} instead of {self.before:.3g}: {options}",
            ]
        )


def advise(result: SensitivityResult, sparsity: float) -> Advice:
    """Return limits that lower the predicted increase of the loss, the most effective one first.

    Args:
        result: the curves.
        sparsity: the target of all layers together; in the range of the ladder.

    Raises:
        ChitaError: the sparsity is outside the range of the ladder.
    """
    ladder = result.sparsities
    if not 0 < sparsity <= ladder[-1]:
        raise ChitaError(
            f"sparsity must be above 0 and at most {ladder[-1]}, the end of the ladder, for "
            f"advice; got {sparsity!r}"
        )
    lower = [0.0, *(s for s in ladder if s < sparsity)]
    before = after = _predict(result, sparsity, {})
    limits: dict[str, float] = {}
    while after > 0 and len(limits) < len(result.layers) - 1:
        free = [layer.name for layer in result.layers if layer.name not in limits]
        trials = [{**limits, name: at_most} for name, at_most in product(free, lower)]
        best = min(trials, key=lambda trial: _predict(result, sparsity, trial))
        predicted = _predict(result, sparsity, best)
        if predicted > after - WORTH * before:
            break
        limits, after = best, predicted
    reasons = (
        Limit(name, at_most, _reason(result, name, at_most, sparsity))
        for name, at_most in limits.items()
    )
    return Advice(sparsity, tuple(reasons), before, after)


def _predict(result: SensitivityResult, sparsity: float, limits: Mapping[str, float]) -> float:
    """Return the sum of the increases, with the other layers at one common sparsity."""
    zeros = sparsity * sum(layer.weights for layer in result.layers)
    zeros -= sum(x.weights * limits[x.name] for x in result.layers if x.name in limits)
    room = sum(layer.weights for layer in result.layers if layer.name not in limits)
    if zeros > result.sparsities[-1] * room:  # outside the measured range
        return math.inf
    rest = zeros / room
    return sum(_rise(result, layer, limits.get(layer.name, rest)) for layer in result.layers)


def _rise(result: SensitivityResult, layer: LayerCurve, sparsity: float) -> float:
    """Interpolate the curve of a layer, which starts at (0, 0), linearly."""
    return float(np.interp(sparsity, (0.0, *result.sparsities), (0.0, *result.rises(layer))))


def _reason(result: SensitivityResult, name: str, at_most: float, sparsity: float) -> str:
    number, layer = next((i, x) for i, x in enumerate(result.layers) if x.name == name)
    ends = {0: ", the first layer,", len(result.layers) - 1: ", the last layer,"}
    which = f"{name}{ends.get(number, '')}"
    what = f"Prune {which} to at most {at_most:.0%}" if at_most else f"Keep {which} dense"
    rise, total = _rise(result, layer, sparsity), _predict(result, sparsity, {})
    part = layer.weights / sum(other.weights for other in result.layers)
    return (
        f"{what}: it has {part:.1%} of the weights and {rise / total:.0%} of the rise of the loss "
        f"at {sparsity:.0%} ({rise:.3g} of {total:.3g})."
    )
