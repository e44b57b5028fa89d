"""The pattern of the zeros in a tensor."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from chita.solver.constraints.pattern import LARGEST_M

_FULL = 0.99  # of the places that a pattern leaves: some of the weights may be zero by chance


def find_pattern(tensor: Tensor) -> str:
    """ "dense" without zeros, "N:M" if no M weights in a row keep more than N, or "unstructured".

    Weights are in a row along the input of a layer, as hardware reads them: over the second
    dimension of a matrix (or the first, where layers hold it transposed), and over the kernel and
    then the input channels of a convolution, channels innermost. The smallest M that fits counts.
    """
    kept = tensor != 0
    if bool(kept.all()):
        return "dense"
    for rows in _along_inputs(kept):
        for m in range(2, LARGEST_M + 1):
            if n := _kept_of_each(rows, m):
                return f"{n}:{m}"
    return "unstructured"


def _along_inputs(kept: Tensor) -> Iterator[Tensor]:
    """Views of shape (outputs, inputs)."""
    if kept.dim() == 2:
        yield kept
        if not _whole_outputs(kept):
            yield kept.T
    elif kept.dim() > 2:
        yield kept.movedim(1, -1).flatten(1)


def _whole_outputs(kept: Tensor) -> bool:
    """Whether all zeros are in outputs that are dead: read transposed, 4 of 8 look like 4:8."""
    alive = int(kept.any(dim=1).sum())
    return int(torch.count_nonzero(kept)) >= _FULL * alive * kept.shape[1]


def _kept_of_each(rows: Tensor, m: int) -> int | None:
    """N, if the rows fall into groups of m with N non-zeros at most, and seldom fewer."""
    if rows.shape[1] % m:
        return None
    nonzeros, groups = int(torch.count_nonzero(rows)), rows.numel() // m
    n = -(-nonzeros // groups)  # no smaller one has room for all
    if n == 0 or n == m or nonzeros < _FULL * n * groups:
        return None
    most = rows.reshape(-1, m).sum(dim=1).max()
    return n if int(most) <= n else None
