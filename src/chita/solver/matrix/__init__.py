"""The gradient matrix A and its storages."""

from chita.solver.matrix.held import HeldMatrix, HeldTarget
from chita.solver.matrix.shared import SharedTarget
from chita.solver.matrix.target import Store

__all__ = ["HeldMatrix", "HeldTarget", "SharedTarget", "Store"]
