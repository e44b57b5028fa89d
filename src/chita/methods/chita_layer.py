"""CHITA layer by layer: the outputs of every layer change as little as k weights allow.

The curvature is that of the layers' inputs, as in L-OBS. The outputs that a layer keeps are half
way to those of the dense network, so that it undoes a part of what pruning the layers before it has
changed (`solver/layer_wise/dense_outputs.py`). The support comes from ADMM, or,
with `solver="iht"`, from the paper's IHT with coordinate descent. The weights on it are the exact
minimiser in both cases.
"""

from dataclasses import replace

from chita.curvature.layer_inputs import DenseOutputs
from chita.methods.registry import Method
from chita.solver.layer_wise.each_layer import EachLayer
from chita.solver.layer_wise.layer import RELATIVE_RIDGE
from chita.solver.layer_wise.solve import solve_by_admm, solve_by_iht

ADMM = Method("chita-layer", DenseOutputs, EachLayer(solve_by_admm), ridge=RELATIVE_RIDGE)
IHT = replace(ADMM, algorithm=EachLayer(solve_by_iht))
CHITA_LAYER = replace(ADMM, solvers={"admm": ADMM, "iht": IHT})
