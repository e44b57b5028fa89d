"""How many weights each layer keeps, and which ones: those with the largest scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.constraints.constraint import ANY_SUPPORT, Constraint

NEXT_TO_NOTHING = 1e-12  # of the largest share: what a share of zero counts as


def share_out(
    total: int, shares: Sequence[float], most: Sequence[int], least: Sequence[int] | None = None
) -> list[int]:
    """Whole numbers in proportion to shares, `total` in all, each from its `least` to its `most`.

    Webster's method: the step from c to c + 1 stands at (c + 1/2) / share, and the steps that stand
    lowest are taken, of equals the first. So no number rises when the total falls. What a number
    that has stopped at its limit cannot take goes to the others.
    """
    least = least if least is not None else [0] * len(most)
    if not sum(least) <= total <= sum(most):
        raise ChitaError(
            f"{total} weights cannot be shared out among layers of {list(least)} to {list(most)}"
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


def uniform_counts(sizes: Sequence[int], k: int) -> list[int]:
    """The same share of every layer, k weights in all."""
    return share_out(k, sizes, sizes)


def erk_counts(shapes: Sequence[Sequence[int]], k: int) -> list[int]:
    """Erdős-Rényi-Kernel (Mocanu; Evci): the weights kept in each layer, k in all.

    A layer's density is proportional to (n_in + n_out + w + h) / (n_in n_out w h), the sum of its
    shape over its size, so that its number of weights is proportional to the sum alone. Layers
    that would be more than dense are dense.

    Args:
        shapes: of the layers' weights: (out, in) or (out, in, h, w).
        k: how many in all.
    """
    return share_out(k, erk_shares(shapes), [math.prod(shape) for shape in shapes])


def erk_shares(shapes: Iterable[Sequence[int]]) -> list[int]:
    """What the numbers of weights are proportional to; a scalar counts as a vector of one."""
    return [sum(shape or (1,)) for shape in shapes]


def top_k_mask(scores: Tensor, k: int) -> Tensor:
    """Where the k largest scores are: bool, in the shape of `scores`.

    Exactly k, also among equals, and without waiting for the device.
    """
    flat = scores.flatten()
    largest = flat.topk(k, sorted=False).indices
    mask = torch.zeros(flat.shape, dtype=torch.bool, device=flat.device)
    return mask.index_fill_(0, largest, True).view_as(scores)


def _steps(level: float, share: float) -> int:
    """How many steps stand at `level` or below, to the last bit: equals must be treated alike."""
    count = math.floor(level * share + 0.5)
    while (count - 0.5) / share > level:
        count -= 1
    while (count + 0.5) / share <= level:
        count += 1
    return count


def top_k_by_layer(
    scores: Tensor, k: int, layers: Sequence[int], constraint: Constraint = ANY_SUPPORT
) -> Tensor:
    """The sorted indices of k entries, of each layer those of the largest magnitude, shape (k,).

    The entry of rank r = 0, 1, ... in a layer of s entries stands at (r + 1/2) / s, and the k
    entries that stand lowest are taken. These are exactly k, and where k falls no layer's number
    rises, as it may when each share is rounded by itself: stages never ask back what is pruned.

    Args:
        scores: (p,).
        k: how many in all.
        layers: the number of entries in each layer, p in all.
        constraint: which supports are allowed; it goes before equal shares.
    """
    parts = torch.split(constraint.magnitude(scores), list(layers))
    standing = torch.cat([_standing(part) for part in parts])
    return constraint.largest(1 - standing, k)


def _standing(scores: Tensor) -> Tensor:
    """(r + 1/2) / s for scores (s,), the largest first and the earlier of equals."""
    order = scores.argsort(descending=True, stable=True)
    ranks = torch.arange(len(scores), dtype=torch.float64, device=scores.device)
    return torch.empty_like(ranks).index_copy_(0, order, (ranks + 0.5) / len(scores))
