"""L-OBS: the inputs of each layer for curvature, the OBS statistic within it, the OBS update."""

from chita.methods.method import Method
from chita.surgeon.layer_wise import LayerWise

L_OBS = Method("l-obs", "inputs", LayerWise())
