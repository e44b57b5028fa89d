"""MP: keep the largest weights as they are."""

from chita.l0.algorithm import SupportThenUpdate
from chita.l0.iht import no_refinement
from chita.l0.solve import keep_magnitude
from chita.methods.method import Method

MAGNITUDE = Method("magnitude", "none", SupportThenUpdate(keep_magnitude, no_refinement))
