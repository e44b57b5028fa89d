"""L-OBS: the inputs of each layer for curvature, the OBS statistic within it, the OBS update."""

from chita.methods.layer_wise import LayerWise
from chita.methods.method import Method

L_OBS = Method("l-obs", "inputs", LayerWise())
