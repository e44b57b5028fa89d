"""An algorithm for a whole network from one for a single layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from chita.solver.algorithm import Layout, begin
from chita.solver.layer_wise.layer import Layer, layers_of
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem

# A layer and the options -> its new weights, (groups, rows, i), and the mask of those that stay.
PruneLayer = Callable[[Layer, Options], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class EachLayer:
    """Prune every layer on its own, for a problem with the moments of the layers' inputs.

    Attributes:
        prune: prunes one layer.
    """

    prune: PruneLayer

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        begin(problem, k, trace)
        pruned = [self.prune(layer, options) for layer in layers_of(problem, k, layout)]
        w = torch.cat([w.flatten() for w, _ in pruned]).to(problem.w0.dtype)
        kept = torch.cat([mask.flatten() for _, mask in pruned])
        return problem.at(w * kept, kept.nonzero()[:, 0]), True
