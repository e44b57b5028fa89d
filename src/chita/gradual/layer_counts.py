"""How many weights of each layer are kept, and which: those with the largest scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from chita.errors import ChitaError


def share_out(total: int, shares: Sequence[float], limits: Sequence[int]) -> list[int]:
    """Whole numbers in proportion to positive shares, `total` in all, none above its limit.

    A share that would exceed its limit stops there; what is left goes to the others.
    """
    if not 0 <= total <= sum(limits):
        raise ChitaError(f"{total} weights cannot be shared out among layers of {list(limits)}")
    exact = [float(limit) for limit in limits]
    opened = list(range(len(limits)))
    left = float(total)
    while opened:
        scale = left / sum(shares[i] for i in opened)
        full = [i for i in opened if shares[i] * scale >= limits[i]]
        if not full:
            exact = [shares[i] * scale if i in opened else exact[i] for i in range(len(limits))]
            break
        opened = [i for i in opened if i not in full]
        left -= sum(limits[i] for i in full)
    return _rounded(exact, total, limits)


def uniform_counts(sizes: Sequence[int], k: int) -> list[int]:
    """The same share of every layer, k weights in all."""
    return share_out(k, sizes, sizes)


def top_k_mask(scores: Tensor, k: int) -> Tensor:
    """Where the k largest scores are: bool, in the shape of `scores`.

    Exactly k, also among equals, and without waiting for the device.
    """
    flat = scores.flatten()
    largest = flat.topk(k, sorted=False).indices
    mask = torch.zeros(flat.shape, dtype=torch.bool, device=flat.device)
    return mask.index_fill_(0, largest, True).view_as(scores)


def _rounded(exact: Sequence[float], total: int, limits: Sequence[int]) -> list[int]:
    """Down, and up where the fraction is largest until the total is right."""
    counts = [math.floor(x) for x in exact]
    room = [i for i, count in enumerate(counts) if count < limits[i]]
    by_fraction = sorted(room, key=lambda i: counts[i] - exact[i])
    for i in by_fraction[: total - sum(counts)]:
        counts[i] += 1
    return counts
