"""CHITA-BSO (algorithm 5): IHT on an active set, then the exact minimiser on its support."""

from chita.l0.solve import ALGORITHMS
from chita.methods.method import Method

CHITA_BSO = Method("chita-bso", "fisher", ALGORITHMS["bso"])
