"""CHITA++ (algorithm 1): a single-stage method, many times, on gradients taken anew each time."""

from dataclasses import replace

from chita.methods.method import Method

STAGES = 60


def chita_plus_plus(inner: Method) -> Method:
    """CHITA++ with a single-stage method inside.

    A stage moves only a little, and the next one corrects it: its support needs few updates.
    """
    options = replace(inner.options, iterations=5)
    return replace(inner, name="chita++", stages=STAGES, options=options)
