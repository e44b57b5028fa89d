"""CHITA-BSO (algorithm 5): IHT on an active set, then the exact minimiser on its support.

Few updates do: from P_k(w0), IHT finds the support it ends with early or not at all, and the
weights come from the backsolve.
"""

from chita.methods.method import Method
from chita.solver.options import Options
from chita.solver.solve import ALGORITHMS

CHITA_BSO = Method(
    "chita-bso",
    "fisher",
    ALGORITHMS["bso"],
    options=Options(iterations=5),
    streams=True,
    drops_dead=True,
)
