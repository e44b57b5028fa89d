"""Allocation: how many weights each layer keeps, at least and at most, at each stage of a run.

Whoever prunes thinks of the sparsity of a layer, the projection of the weights it keeps: a sparsity
of at most s is a number of weights of at least (1 - s) times the layer's size.
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
    """What each layer keeps at the end.

    Attributes:
        sizes: the number of weights in each layer.
        least: the fewest that each layer keeps at the end.
        most: the most that each layer keeps at the end.
        k: how many are kept at the end in all.
    """

    sizes: tuple[int, ...]
    least: tuple[int, ...]
    most: tuple[int, ...]
    k: int

    def stage(self, k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The fewest and the most that each layer keeps at a stage that keeps k in all.

        The fewest are those of the end. What a layer must lose by the end, its size less `most`, it
        loses in proportion to what has been pruned in all. By Webster's method it never gets any
        back, and between two stages the layers together must lose no more than is pruned: so from
        any support of the stage before, the next one can be reached by pruning alone.
        """
        losses = [size - most for size, most in zip(self.sizes, self.most, strict=True)]
        free = sum(self.sizes) - self.k - sum(losses)  # goes where the weights say
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
    """What each layer keeps when k weights are kept in all; None if any k weights will do.

    Args:
        shapes: of the prunable parameters, by name.
        k: how many are kept at the end.
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
    """The fewest and the most weights that each layer may keep, whatever is kept in all.

    Args:
        shapes: of the prunable parameters, by name.
        rule: as for `allocate`, and the same for the others.
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
    """The sparsity of each layer that a pattern matches; the last such pattern counts."""
    for pattern in shares:
        if not any(fnmatchcase(name, pattern) for name in names):
            known = ", ".join(list(names)[:8]) + (", ..." if len(names) > 8 else "")
            raise ChitaError(
                f"{argument}={pattern!r} matches no prunable weight; these are {known}"
            )
    return {
        name: sparsity
        for pattern, sparsity in shares.items()
        for name in names
        if fnmatchcase(name, pattern)
    }


def _counts(size: int, low: float, high: float) -> tuple[int, int]:
    """The fewest and the most weights kept at a sparsity from `low` to `high`, read as decimals.

    Where no whole number lies between, the two next to it.
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
            f"the sparsity asked for keeps {k} of {p} weights, but allocation, at_least and "
            f"at_most allow {counts}; give a sparsity {shares}, or other limits"
        )


def sparsity_of(kept: int, p: int) -> float:
    """A sparsity that keeps so many of p weights, far from where rounding would make it another."""
    return max(0.0, 1 - (kept + 0.5) / p)
