"""OBD (LeCun et al. 1989): a diagonal Fisher matrix, ranking by w^2 h / 2, no update."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from chita.curvature.fisher import Fisher
from chita.methods.registry import Method
from chita.methods.surgeon import Surgeon
from chita.methods.surgeon_inverse import square_norms
from chita.solver.blocks.block_batch import BlockBatch
from chita.solver.problem import Problem


@dataclass(frozen=True)
class Diagonal:
    """1 / h, (b, B)."""

    inverse: Tensor

    def diagonal(self) -> Tensor:
        return self.inverse

    def product(self, v: Tensor) -> Tensor:
        return self.inverse * v


def diagonal(problem: Problem, batch: BlockBatch) -> Diagonal:
    """Compute the inverse of OBD in one pass over A."""
    h = square_norms(batch.stack(problem.matrix.whole())).add_(problem.mu)
    # A zero column without ridge has h = 0: removing its weight costs almost nothing.
    return Diagonal(1 / h.clamp_min_(torch.finfo(h.dtype).tiny))


OBD = Method("obd", Fisher, Surgeon(diagonal))
