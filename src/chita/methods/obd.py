"""OBD (LeCun et al. 1989): the diagonal Fisher, rank by w^2 h / 2, no update."""

from chita.methods.diagonal import diagonal
from chita.methods.method import Method
from chita.methods.surgeon import Surgeon

OBD = Method("obd", "fisher", Surgeon(diagonal))
