"""Section 3.2 and appendix A of the paper: l0-constrained ridge regression. Knows no networks."""

from chita.l0.options import Options
from chita.l0.solve import Solution, solve

__all__ = ["Options", "Solution", "solve"]
