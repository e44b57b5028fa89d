"""Wanda (Sun et al., 2023): keep the largest |W_ij| |X_j| of each output row, without an update.

|X_j| is the norm of input j over the calibration samples. N:M compares within the groups of M.
"""

from chita.curvature.layer_inputs import BlockInputs
from chita.methods.registry import Method
from chita.solver.layer_wise.each_layer import EachLayer, PrunedLayer
from chita.solver.layer_wise.layer import Layer
from chita.solver.options import Options


def wanda(layer: Layer, options: Options) -> PrunedLayer:
    """Return the weights of a layer and the mask of those that stay."""
    mask = layer.pick_by_row(layer.w0 * layer.squares.sqrt().to(layer.w0.dtype))
    return PrunedLayer(layer.w0 * mask, mask)


WANDA = Method("wanda", BlockInputs, EachLayer(wanda), ridge=0.0)
