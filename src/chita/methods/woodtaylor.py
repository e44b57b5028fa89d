"""WoodTaylor (Singh & Alistarh 2020): WoodFisher with the first-order term."""

from chita.curvature.fisher import Fisher
from chita.methods.registry import Method
from chita.methods.surgeon import Surgeon
from chita.methods.woodfisher import Woodbury, woodbury_memory

WOODTAYLOR = Method(
    "woodtaylor", Fisher, Surgeon(Woodbury(), first_order=True), memory=woodbury_memory
)
