"""CBS (Yu et al., 2022): the support by swaps, then the exact joint update of what stays on it.

As in its paper, the gradient of the trained network is taken for zero. The rounds of swaps are few:
more of them fit f to the n samples that A is made of, and the network no longer follows.
"""

from chita.methods.method import Method
from chita.methods.swaps import swap_support
from chita.methods.without_first_order import WithoutFirstOrder
from chita.solver.algorithm import SupportThenUpdate
from chita.solver.iht import refine_by_backsolve
from chita.solver.options import Options

CBS = Method(
    "cbs",
    "fisher",
    WithoutFirstOrder(SupportThenUpdate(swap_support, refine_by_backsolve)),
    options=Options(iterations=8),  # rounds of swaps
    constrained=False,
)
