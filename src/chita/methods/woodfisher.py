"""WoodFisher (Singh & Alistarh 2020): the explicit inverse Fisher, rank by w^2 / [H^-1]_ii, the
summed OBS update."""

from chita.methods.method import Method
from chita.methods.surgeon import Surgeon
from chita.methods.woodbury import Woodbury, woodbury_memory

WOODFISHER = Method("woodfisher", "fisher", Surgeon(Woodbury()), memory=woodbury_memory)
