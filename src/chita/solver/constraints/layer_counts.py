"""The number of weights that each layer keeps, and the choice of those with the largest scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.constraints.constraint import ANY_SUPPORT, Constraint

NEXT_TO_NOTHING = 1e-12  # a share of zero counts as this fraction of the largest share


def share_out(
    total: int, shares: Sequence[float], most: Sequence[int], least: Sequence[int] | None = None
) -> list[int]:
    """Return integers in proportion to shares that sum to `total`, within `least` and `most`.

    This is Webster's method: the step from c to c + 1 has the rank (c + 1/2) / share, and the steps
    of lowest rank are taken, of equals the first. Therefore no number rises when the total falls.
    The excess of a number at its limit goes to the others.
    """
    least = least if least is not None else [0] * len(most)
    if not sum(least) <= total <= sum(most):
        raise ChitaError(
            f"total={total} weights cannot be divided among layers that keep {list(least)} to "
            f"{list(most)}"
        )
    tiny = NEXT_TO_NOTHING * (max(shares) or 1.0)
    shares = [max(share, tiny) for share in shares]

    def counts(level: float) -> list[int]:
        numbers = (_steps(level, share) for share in shares)
        return [min(max(n, a), b) for n, a, b in zip(numbers, least, most, strict=True)]

    low, high = 0.0, max((b + 1) / share for b, share in zip(most, shares, strict=True))
    while low < (middle := (low + high) / 2) < high:
        if sum(counts(middle)) <= total:
            low = middle
        else:
            high = middle
    found = counts(low)
    waiting = [i for i, count in enumerate(found) if count < most[i]]
    waiting.sort(key=lambda i: (found[i] + 0.5) / shares[i])
    for i in waiting[: total - sum(found)]:
        found[i] += 1
    return found


def erk_counts(shapes: Sequence[Sequence[int]], k: int) -> list[int]:
    """Return the Erdős-Rényi-Kernel counts (Mocanu; Evci): the weights that each layer keeps.

    The density of a layer is proportional to (n_in + n_out + w + h) / (n_in n_out w h), the sum of
    its shape over its size, so its number of weights is proportional to the sum. Layers whose
    density would exceed 1 are dense.

    Args:
        shapes: the shapes of the layers' weights: (out, in) or (out, in, h, w).
        k: the number of weights in all layers together.
    """
    return share_out(k, erk_shares(shapes), [math.prod(shape) for shape in shapes])


def erk_shares(shapes: Iterable[Sequence[int]]) -> list[int]:
    """Return the shares that the counts are proportional to; a scalar counts as a vector of one."""
    return [sum(shape or (1,)) for shape in shapes]


def top_k_mask(scores: Tensor, k: int) -> Tensor:
    """Return a bool mask, in the shape of `scores`, of the k largest scores.

    The mask has exactly k entries, also among equals, and is computed without synchronisation.
    """
    flat = scores.flatten()
    largest = flat.topk(k, sorted=False).indices
    mask = torch.zeros(flat.shape, dtype=torch.bool, device=flat.device)
    return mask.index_fill_(0, largest, True).view_as(scores)


def _steps(level: float, share: float) -> int:
    """Return the number of steps of rank `level` or below, exactly, so that equals are equal."""
    count = math.floor(level * share + 0.5)
    while (count - 0.5) / share > level:
        count -= 1
    while (count + 0.5) / share <= level:
        count += 1
    return count


def top_k_by_layer(
    scores: Tensor, k: int, layers: Sequence[int], constraint: Constraint = ANY_SUPPORT
) -> Tensor:
    """Return the sorted indices, (k,), of the entries of largest magnitude in each layer.

    Entry r = 0, 1, ... of a sorted layer of s entries has the rank (r + 1/2) / s, and the k entries
    of lowest rank are taken. There are exactly k, and no layer's number rises when k falls, as it
    may when each share is rounded separately: no stage needs weights that are already pruned.

    Args:
        scores: (p,).
        k: the number of entries in total.
        layers: the number of entries in each layer, p in total.
        constraint: the allowed supports; it takes precedence over equal shares.
    """
    parts = torch.split(constraint.magnitude(scores), list(layers))
    standing = torch.cat([_standing(part) for part in parts])
    return constraint.largest(1 - standing, k)


def _standing(scores: Tensor) -> Tensor:
    """Return the ranks (r + 1/2) / s of scores (s,); the largest and the first of equals lead."""
    order = scores.argsort(descending=True, stable=True)
    ranks = torch.arange(len(scores), dtype=torch.float64, device=scores.device)
    return torch.empty_like(ranks).index_copy_(0, order, (ranks + 0.5) / len(scores))
