"""MP: keep the largest weights unchanged, among all weights or within each layer."""

from dataclasses import dataclass

from chita.curvature.source import NoCurvature
from chita.methods.registry import Method
from chita.solver.algorithm import Layout, begin
from chita.solver.constraints.layer_counts import top_k_by_layer
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem


@dataclass(frozen=True)
class LargestWeights:
    """P_k(w0), or with `by_layer` the largest weights of each layer, the same share of each."""

    by_layer: bool = False

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        x = begin(problem, k, trace)
        if not self.by_layer:
            return x, True
        kept = top_k_by_layer(problem.w0, k, layout.layers, problem.constraint)
        return problem.unmoved(kept), True


MAGNITUDE = Method("magnitude", NoCurvature, LargestWeights())
MAGNITUDE_UNIFORM = Method("magnitude-uniform", NoCurvature, LargestWeights(by_layer=True))
