"""An algorithm for a whole network from one for a single layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from chita.solver.algorithm import Layout, begin
from chita.solver.layer_wise.layer import Layer, layers_of
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem


class PrunedLayer(NamedTuple):
    """What a method makes of a layer.

    Attributes:
        w: the new weights, (groups, rows, i).
        mask: those that stay.
        jitter: the largest value added to the diagonal of a singular system, relative to the mean
            of the diagonal of the layer's moments.
        converged: whether the weights are the exact minimiser, if the method computes it.
    """

    w: Tensor
    mask: Tensor
    jitter: float = 0.0
    converged: bool = True


PruneLayer = Callable[[Layer, Options], PrunedLayer]


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
        w = torch.cat([layer.w.flatten() for layer in pruned]).to(problem.w0.dtype)
        kept = torch.cat([layer.mask.flatten() for layer in pruned])
        trace.jitter = max(layer.jitter for layer in pruned)
        point = problem.at(w * kept, kept.nonzero()[:, 0])
        return point, all(layer.converged for layer in pruned)
