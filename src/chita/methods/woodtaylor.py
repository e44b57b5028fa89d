"""WoodTaylor (Singh & Alistarh 2020): WoodFisher with the first-order term."""

from chita.methods.method import Method
from chita.methods.surgeon import Surgeon
from chita.methods.woodfisher import Woodbury, woodbury_memory

WOODTAYLOR = Method(
    "woodtaylor", "fisher", Surgeon(Woodbury(), first_order=True), memory=woodbury_memory
)
