"""The same share of every layer, in place of one threshold for all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from chita.solver.constraints.constraint import ANY_SUPPORT, Constraint


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
