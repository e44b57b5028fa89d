"""RIA (Zhang et al., 2024): the relative importance of a weight and the norm of its input.

The score of weight W_ij, from input j to output i, is

    (|W_ij| / sum_i |W_ij| + |W_ij| / sum_j |W_ij|) |X_j|^a,      a = 1/2,

so that no input or output loses all of its weights. The largest scores of the layer stay, without
an update. The paper's permutation of channels for N:M is not part of this method.
"""

from torch import Tensor

from chita.curvature.layer_inputs import BlockInputs
from chita.methods.registry import Method
from chita.solver.layer_wise.each_layer import EachLayer, PrunedLayer
from chita.solver.layer_wise.layer import Layer
from chita.solver.options import Options

POWER = 0.5  # a


def ria(layer: Layer, options: Options) -> PrunedLayer:
    """Return the weights of a layer and the mask of those that stay."""
    sizes = layer.w0.abs().double()
    relative = _shares(sizes, 1) + _shares(sizes, 2)
    mask = layer.pick(relative * layer.squares ** (POWER / 2))
    return PrunedLayer(layer.w0 * mask, mask)


def _shares(sizes: Tensor, dim: int) -> Tensor:
    """Return the share of each entry in the sum along an axis; 0 if all entries there are 0."""
    total = sizes.sum(dim, keepdim=True)
    return sizes / total.masked_fill(total == 0, 1.0)


RIA = Method("ria", BlockInputs, EachLayer(ria), ridge=0.0)
