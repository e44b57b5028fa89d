"""CHITA-CD (algorithm 4): IHT with coordinate descent on an active set."""

from chita.l0.solve import ALGORITHMS
from chita.methods.method import Method

CHITA_CD = Method("chita-cd", "fisher", ALGORITHMS["cd"], streams=True, drops_dead=True)
