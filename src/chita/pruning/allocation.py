"""Allocation: how many weights each layer keeps, at least and at most, at each stage of a run.

Options give the sparsity of a layer, the projection uses the number of weights it keeps: a sparsity
of at most s means at least (1 - s) times the size of the layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction

from chita.errors import ChitaError
from chita.solver.constraints.layer_counts import erk_shares, share_out

GLOBAL, UNIFORM, ERK = RULES = ("global", "uniform", "erk")

Shares = Mapping[str, float]  # glob pattern of parameter names -> sparsity of each layer it matches


@dataclass(frozen=True)
class Allocation:
    """The number of weights that each layer keeps at the end of a run.

    Attributes:
        sizes: the number of weights in each layer.
        least: the fewest that each layer keeps.
        most: the most that each layer keeps.
        k: the number that all layers keep together.
    """

    sizes: tuple[int, ...]
    least: tuple[int, ...]
    most: tuple[int, ...]
    k: int

    def stage(self, k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the fewest and the most that each layer keeps at a stage that keeps k in total.

        The fewest are those of the end. A layer loses the weights that it must lose by the end, its
        size minus `most`, in proportion to the number of weights pruned in total. With Webster's
        method the numbers never grow again, and between two stages the layers together must lose no
        more than is pruned. The next support can therefore be reached by pruning alone.
        """
        losses = [size - most for size, most in zip(self.sizes, self.most, strict=True)]
        free = sum(self.sizes) - self.k - sum(losses)  # zeros that any layer may have
        parties = [*losses, free]
        lost = share_out(sum(self.sizes) - k, parties, parties)
        return self.least, tuple(n - x for n, x in zip(self.sizes, lost[:-1], strict=True))


def allocate(
    shapes: Mapping[str, Sequence[int]],
    k: int,
    *,
    rule: str | Shares = GLOBAL,
    at_least: Shares | None = None,
    at_most: Shares | None = None,
) -> Allocation | None:
    """Return the counts of the layers for k weights in total; None if any k weights are allowed.

    Args:
        shapes: the shapes of the prunable parameters, by name.
        k: the number of weights that are kept at the end.
        rule: "global", "uniform", "erk", or the sparsities of some layers.
        at_least: the least sparsity of some layers.
        at_most: the highest sparsity of some layers.

    Raises:
        ChitaError: a pattern matches nothing, or the limits contradict each other or k.
    """
    if rule == GLOBAL and not at_least and not at_most:
        return None
    sizes = [math.prod(shape) for shape in shapes.values()]
    least, most = layer_limits(shapes, rule, at_least, at_most)
    _check_total(k, sum(sizes), sum(least), sum(most))
    if rule in (UNIFORM, ERK):
        shares = erk_shares(shapes.values()) if rule == ERK else sizes
        least = most = share_out(k, shares, most, least)
    return Allocation(tuple(sizes), tuple(least), tuple(most), k)


def layer_limits(
    shapes: Mapping[str, Sequence[int]],
    rule: str | Shares = GLOBAL,
    at_least: Shares | None = None,
    at_most: Shares | None = None,
) -> tuple[list[int], list[int]]:
    """Return the fewest and the most weights that each layer may keep, for any total.

    Args:
        shapes: the shapes of the prunable parameters, by name.
        rule: as for `allocate`.
        at_least: the least sparsity of some layers.
        at_most: the highest sparsity of some layers.
    """
    exact = _matched("allocation", {} if isinstance(rule, str) else rule, shapes)
    lower = _matched("at_least", at_least or {}, shapes)
    upper = _matched("at_most", at_most or {}, shapes)
    least, most = [], []
    for name, shape in shapes.items():
        low = max(exact.get(name, 0.0), lower.get(name, 0.0))
        high = min(exact.get(name, 1.0), upper.get(name, 1.0))
        if low > high:
            raise ChitaError(
                f"{name!r} cannot have a sparsity of at least {low} and of at most {high}; see "
                "allocation, at_least and at_most"
            )
        few, many = _counts(math.prod(shape), low, high)
        least.append(few)
        most.append(many)
    return least, most


def _matched(argument: str, shares: Shares, names: Mapping[str, object]) -> dict[str, float]:
    """Return the sparsity of each layer that a pattern matches; the last matching pattern wins."""
    for pattern in shares:
        if not any(fnmatchcase(name, pattern) for name in names):
            known = ", ".join(list(names)[:8]) + (", ..." if len(names) > 8 else "")
            raise ChitaError(
                f"{argument}={pattern!r} matches no prunable weight; the weights are {known}"
            )
    return {
        name: sparsity
        for pattern, sparsity in shares.items()
        for name in names
        if fnmatchcase(name, pattern)
    }


def _counts(size: int, low: float, high: float) -> tuple[int, int]:
    """Return the fewest and the most weights at a sparsity from `low` to `high`, as decimals.

    If the interval contains no integer, return the two integers next to it.
    """
    fewest = math.ceil((1 - Fraction(str(high))) * size)
    most = math.floor((1 - Fraction(str(low))) * size)
    return min(fewest, most), max(fewest, most)


def _check_total(k: int, p: int, least: int, most: int) -> None:
    if not least <= k <= most:
        lowest, highest = sparsity_of(most, p), sparsity_of(least, p)
        counts, shares = f"{least} to {most}", f"from {lowest:.9g} to {highest:.9g}"
        if least == most:
            counts, shares = f"{least} only", f"of {highest:.9g}"
        raise ChitaError(
            f"the given sparsity keeps {k} of {p} weights, but allocation, at_least and "
            f"at_most allow {counts}; give a sparsity {shares}, or other limits"
        )


def sparsity_of(kept: int, p: int) -> float:
    """Return a sparsity that keeps this many of p weights, robust to rounding."""
    return max(0.0, 1 - (kept + 0.5) / p)
