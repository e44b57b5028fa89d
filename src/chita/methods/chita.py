"""CHITA-CD (algorithm 4), CHITA-BSO (algorithm 5), CHITA++ (algorithm 1) and auto."""

from dataclasses import replace

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


CHITA_CD = Method("chita-cd", "fisher", ALGORITHMS["cd"], streams=True, drops_dead=True)


STAGES = 60


def chita_plus_plus(inner: Method) -> Method:
    """CHITA++ with a single-stage method inside.

    A stage moves only a little, and the next one corrects it: its support needs few updates.
    """
    options = replace(inner.options, iterations=5)
    return replace(inner, name="chita++", stages=STAGES, options=options)


AUTO = replace(chita_plus_plus(CHITA_BSO), name="auto")
