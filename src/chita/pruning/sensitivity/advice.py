"""Which layers to keep dense, or to limit, from the curves of `chita.sensitivity`.

The curves are added up: the loss is taken to rise, with layer l at sparsity s_l, by the sum of the
layers' own rises. A layer that is limited leaves its zeros to the others, so that the sparsity of
the whole stays the same; the limit pays if the sum falls nevertheless.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from chita.errors import ChitaError
from chita.pruning.sensitivity.result import LayerCurve, SensitivityResult

WORTH = 0.1  # a limit must take so much of the rise away


@dataclass(frozen=True)
class Limit:
    """A layer that should be pruned less than the others.

    Attributes:
        layer: its name.
        sparsity: the most it should get; 0 to keep it dense.
        reason: with figures.
    """

    layer: str
    sparsity: float
    reason: str


@dataclass(frozen=True)
class Advice:
    """What the curves say about pruning to one sparsity.

    Attributes:
        sparsity: of all weights together.
        limits: in the order in which they pay.
        before: the predicted rise of the loss with the same sparsity in every layer.
        after: with the limits.
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
                f"{self.after:.3g} in place of {self.before:.3g}: {options}",
            ]
        )


def advise(result: SensitivityResult, sparsity: float) -> Advice:
    """Limits that lower the predicted rise of the loss, the one that pays most first.

    Args:
        result: the curves.
        sparsity: to prune to, all layers together; in the range of the ladder.
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
    """The sum of the rises with `limits`, the other layers all at what makes up for them."""
    zeros = sparsity * sum(layer.weights for layer in result.layers)
    zeros -= sum(x.weights * limits[x.name] for x in result.layers if x.name in limits)
    room = sum(layer.weights for layer in result.layers if layer.name not in limits)
    if zeros > result.sparsities[-1] * room:  # further than was measured
        return math.inf
    rest = zeros / room
    return sum(_rise(result, layer, limits.get(layer.name, rest)) for layer in result.layers)


def _rise(result: SensitivityResult, layer: LayerCurve, sparsity: float) -> float:
    """On straight lines between the points of the curve, which starts at (0, 0)."""
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
