"""Section 3.2 and appendix A of the paper: l0-constrained ridge regression. Knows no networks."""

from chita.solver.options import Options
from chita.solver.solve import Solution, solve

__all__ = ["Options", "Solution", "solve"]
