"""L0-constrained ridge regression (section 3.2 and appendix A of the paper), without networks."""

from chita.solver.options import Options
from chita.solver.solve import Solution, solve

__all__ = ["Options", "Solution", "solve"]
