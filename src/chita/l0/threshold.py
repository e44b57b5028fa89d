"""The hard thresholding operator P_k: keep the k entries of largest magnitude."""

from __future__ import annotations

import torch
from torch import Tensor


def top_k(x: Tensor, k: int) -> Tensor:
    """I_k(x): the sorted indices of the k entries of x of largest magnitude, shape (k,).

    Exactly k; among equals the lowest indices win, on every device and every run.
    """
    if k == 0:
        return torch.empty(0, dtype=torch.int64, device=x.device)
    magnitude = x.abs()
    smallest = magnitude.kthvalue(x.numel() - k + 1).values
    kept = magnitude >= smallest
    surplus = int(kept.sum()) - k
    if surplus:
        ties = (magnitude == smallest).nonzero().squeeze(1)
        kept[ties[len(ties) - surplus :]] = False
    return kept.nonzero().squeeze(1)


def hard_threshold(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """P_k(x), which is x with all but the k entries I_k(x) set to zero, and I_k(x)."""
    kept = top_k(x, k)
    return torch.zeros_like(x).index_copy_(0, kept, x[kept]), kept
