"""CHITA layer by layer, with a curvature that adds the gradients of the loss to the layer's inputs.

The problem of a layer adds the Fisher matrix of the loss to the inputs of the layer, as in MOONSHOT
(2026). The solver is that of chita-layer. The share t of the inputs and the ridge are chosen by the
loss on held-out samples.
"""

from chita.curvature.both import InputsAndGradients
from chita.methods.registry import Method
from chita.solver.layer_wise.each_layer import EachLayer
from chita.solver.layer_wise.solve import solve_by_admm

CHITA_BOTH = Method("chita-both", InputsAndGradients, EachLayer(solve_by_admm), streams=True)
