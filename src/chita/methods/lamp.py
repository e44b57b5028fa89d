"""LAMP (Lee et al. 2021): keep the weights with the largest scores unchanged.

The score of a weight is its square over the sum of all squares of the layer that are no smaller.
The largest weight of a layer has a score of 1, so that no layer is removed as a whole.
"""

from dataclasses import dataclass

import torch

from chita.curvature.source import NoCurvature
from chita.methods.registry import Method
from chita.model.weight_scales import lamp
from chita.solver.algorithm import Layout, begin
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem


@dataclass(frozen=True)
class LargestScores:
    """The weights with the k largest LAMP scores, of all layers together."""

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        begin(problem, k, trace)
        layers = torch.split(problem.w0, list(layout.layers))
        roots = torch.cat([lamp(w) * w for w in layers])  # of the scores, with signs
        return problem.unmoved(problem.largest(roots, k)), True


LAMP = Method("lamp", NoCurvature, LargestScores())
