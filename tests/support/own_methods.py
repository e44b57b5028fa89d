"""The file of a user's method."""

from __future__ import annotations

MINE = """
import chita
from chita.curvature import NoCurvature

class Smallest:
    def run(self, problem, k, layout, options, trace):
        return problem.unmoved(problem.largest(1 / problem.w0.abs().clamp_min(1e-12), k)), True

MINE = chita.Method("mine", NoCurvature, Smallest())
"""


REGISTERED = f"{MINE}\nchita.register_method(MINE)\n"
