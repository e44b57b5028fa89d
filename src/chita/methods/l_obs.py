"""L-OBS (Dong et al., 2017): the OBS statistic and update within each layer.

The outputs of a layer W (outputs x i) should change little: a change D of W costs 1/2 of the mean
of |D x|^2 over the inputs x, which is 1/2 tr(D M D^T) with M the mean of x x^T. All outputs
therefore share one small Hessian H = M + lambda I, and the weights P are selected and removed as in
OBS:

    statistic  w_q^2 / [H^-1]_qq        update  W <- W - (W_P / diag(H^-1)) H^-1,  then zeros on P

The statistic ranks the weights within a layer, that of a tile is the sum over its weights, and the
same share of every layer is removed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from chita.curvature.layer_inputs import LayerInputs
from chita.methods.registry import Method
from chita.methods.surgeon_inverse import cholesky
from chita.solver.algorithm import Layout, begin
from chita.solver.constraints.layer_counts import top_k_by_layer
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem


@dataclass(frozen=True)
class LayerWise:
    """The summed surgeon's update of every layer on its own, for a problem with layer moments."""

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        begin(problem, k, trace)
        sizes = list(layout.layers)
        parts = zip(torch.split(problem.w0, sizes), problem.moments, strict=True)
        layers = [_Layer(w.double(), moment, problem.mu) for w, moment in parts]
        scores = torch.cat([layer.scores for layer in layers])
        kept = top_k_by_layer(scores, k, layout.layers, problem.constraint)
        mask = torch.zeros_like(scores).index_fill_(0, kept, 1.0)
        masks = torch.split(mask, sizes)
        moved = [layer.prune(part) for layer, part in zip(layers, masks, strict=True)]
        return problem.at(torch.cat(moved).to(problem.w0.dtype), kept), True


class _Layer:
    """The weights of a layer, (groups, outputs of a group, i), and its H^-1, (groups, i, i)."""

    def __init__(self, w: Tensor, moment: Tensor, mu: float) -> None:
        self.w = w.view(len(moment), -1, moment.shape[-1])
        self.inverse = torch.cholesky_inverse(cholesky(moment, mu))
        self.diagonal = self.inverse.diagonal(dim1=1, dim2=2)[:, None]

    @property
    def scores(self) -> Tensor:
        """The roots of the statistics, (size,): tiles are ranked by the sums of their squares."""
        return (self.w / self.diagonal.sqrt()).flatten()

    def prune(self, mask: Tensor) -> Tensor:
        """Remove the weights where the mask is 0 and update the others, (size,)."""
        mask = mask.view_as(self.w)
        moved = self.w - ((1 - mask) * self.w / self.diagonal) @ self.inverse
        return (mask * moved).flatten()


L_OBS = Method("l-obs", LayerInputs, LayerWise())
