"""CHITA-CD (algorithm 4): IHT with coordinate descent on an active set."""

from chita.methods.method import Method
from chita.solver.solve import ALGORITHMS

CHITA_CD = Method("chita-cd", "fisher", ALGORITHMS["cd"], streams=True, drops_dead=True)
