"""CHITA-CD (algorithm 4), CHITA-BSO (algorithm 5), CHITA++ (algorithm 1) and auto."""

from dataclasses import replace

from chita.curvature.fisher import Fisher
from chita.methods.registry import Method
from chita.solver.options import Options
from chita.solver.solve import ALGORITHMS

STAGES = 60

CHITA_CD = Method("chita-cd", Fisher, ALGORITHMS["cd"], streams=True, drops_dead=True)
CHITA_BSO = replace(
    CHITA_CD, name="chita-bso", algorithm=ALGORITHMS["bso"], options=Options(iterations=5)
)


def chita_plus_plus(inner: Method) -> Method:
    """Return CHITA++ with a single-stage method inside.

    A stage changes the support only a little and the next stage corrects it, so that few updates
    suffice.
    """
    options = replace(inner.options, iterations=5)
    return replace(inner, name="chita++", stages=STAGES, options=options)


CHITA_PLUS_PLUS = replace(
    chita_plus_plus(CHITA_BSO),
    solvers={"bso": chita_plus_plus(CHITA_BSO), "cd": chita_plus_plus(CHITA_CD)},
)
AUTO = replace(chita_plus_plus(CHITA_BSO), name="auto")
