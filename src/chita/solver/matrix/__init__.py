"""The gradient matrix A and its storages."""

from chita.solver.matrix.in_memory import HeldMatrix, HeldTarget, Store
from chita.solver.matrix.shared import SharedTarget

__all__ = ["HeldMatrix", "HeldTarget", "SharedTarget", "Store"]
