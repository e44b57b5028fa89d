"""MP: keep the largest weights as they are, of all weights or of each layer."""

from dataclasses import dataclass

from chita.l0.algorithm import Layout, SupportThenUpdate
from chita.l0.iht import no_refinement
from chita.l0.options import Options, Trace
from chita.l0.problem import Iterate, Problem
from chita.l0.shares import top_k_by_layer
from chita.l0.solve import keep_magnitude
from chita.methods.method import Method


@dataclass(frozen=True)
class LargestOfEachLayer:
    """The same share of every layer."""

    def run(
        self, problem: Problem, x: Iterate, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        kept = top_k_by_layer(problem.w0, len(x.support), layout.layers)
        return problem.unmoved(kept), True


MAGNITUDE = Method("magnitude", "none", SupportThenUpdate(keep_magnitude, no_refinement))
MAGNITUDE_UNIFORM = Method("magnitude-uniform", "none", LargestOfEachLayer())
