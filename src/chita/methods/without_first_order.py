"""For the systems that take the gradient of the trained network for zero."""

from __future__ import annotations

from dataclasses import dataclass, replace

from chita.solver.algorithm import Algorithm, Layout, begin
from chita.solver.options import Options, Trace
from chita.solver.problem import Iterate, Problem


@dataclass(frozen=True)
class WithoutFirstOrder:
    """An algorithm on the problem without its first-order term, which is that of offset 0."""

    algorithm: Algorithm

    def run(
        self, problem: Problem, k: int, layout: Layout, options: Options, trace: Trace
    ) -> tuple[Iterate, bool]:
        begin(problem, k, trace)
        still = replace(problem, offset=problem.offset.new_zeros(problem.matrix.n))
        # Its objective is another one, which has no place in the history of this problem.
        record = Trace(trace.limit)
        point, settled = self.algorithm.run(still, k, layout, options, record)
        trace.iterations, trace.jitter = record.iterations, record.jitter
        return problem.at(point.w, point.support), settled
