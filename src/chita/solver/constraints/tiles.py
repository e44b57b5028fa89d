"""Tiles of weights that are kept or dropped whole, by their norm (block sparsity)."""

from __future__ import annotations

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.constraints.constraint import Constraint, top_k
from chita.solver.ranks import ALONE, Ranks


class Tiles(Constraint):
    """Whole tiles of t weights; a support of k weights has floor(k / t) tiles.

    Args:
        ids: the tile of each column, (p,) int64, from 0 to p/t - 1, each t times.
    """

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids
        sizes = torch.bincount(ids)
        if bool((sizes != sizes[:1]).any()):
            raise ChitaError("all tiles must have the same size, but some are cut")
        self.tiles = ids.argsort(stable=True).view(len(sizes), -1)  # (T, t) columns

    @property
    def _size(self) -> int:
        return self.tiles.shape[1]

    def largest(self, x: Tensor, k: int, ranks: Ranks = ALONE) -> Tensor:
        if k < self._size:
            return self.ids[:0]
        kept = top_k(self._squares(x), k // self._size)
        return self.tiles[kept].flatten().sort().values

    def breaking_point(self, w: Tensor, g: Tensor, support: Tensor, ranks: Ranks = ALONE) -> float:
        """Return the tau at which |w_T - tau g_T| = tau |g_U| for a tile T inside and U outside.

        U is the tile with the largest |g_U|. With a = |w_T|^2, b = w_T . g_T and
        c = |g_T|^2 - |g_U|^2, tau is the first positive root of a - 2 b tau + c tau^2, which is
        a / (b + (b^2 - a c)^1/2).
        """
        inside = torch.zeros(len(self.tiles), dtype=torch.bool, device=w.device)
        inside[self.ids[support]] = True
        pull = self._squares(g.double())
        if not bool(inside.any()) or bool(inside.all()):
            return torch.inf
        a = self._squares(w.double())[inside]
        b = (w.double() * g.double())[self.tiles[inside]].sum(1)
        c = pull[inside] - pull[~inside].max()
        closing = b + (b.square() - a * c).clamp_min(0).sqrt()
        meets = (b.square() >= a * c) & (closing > 0)
        return float(torch.where(meets, a / closing, torch.inf).min())

    def magnitude(self, x: Tensor) -> Tensor:
        """Return the norm of each entry's tile, (p,)."""
        return self._squares(x).sqrt()[self.ids]

    def restrict(self, index: Tensor) -> Tiles:
        return Tiles(torch.unique(self.ids[index], return_inverse=True)[1])

    def block(self, start: int, stop: int, kept: Tensor) -> Tiles:
        return self.restrict(torch.arange(start, stop, device=self.ids.device))

    def _squares(self, x: Tensor) -> Tensor:
        """Return |x_T|^2 for each tile, (T,)."""
        return x[self.tiles].square().sum(1)
