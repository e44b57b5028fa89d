"""chita: prune trained neural networks by combinatorial optimisation."""

from chita import data, gradual, zoo
from chita.curvature.per_sample import register_gradient_rule
from chita.deploy.fast import Accelerated, accelerate
from chita.deploy.onnx_file import export_onnx
from chita.errors import ChitaError
from chita.files.packed import load, save
from chita.methods.registry import Method, register_method
from chita.model.layers import LayerKind, register_layer
from chita.model.weights import apply_masks
from chita.pruning.config import PruneConfig
from chita.pruning.prune import prune
from chita.pruning.recovery.recover import RecoverResult, recover
from chita.pruning.result import PruneResult
from chita.pruning.sensitivity import SensitivityResult, sensitivity
from chita.solver import Options, Solution, solve

__version__ = "0.1.0"

__all__ = [
    "Accelerated",
    "ChitaError",
    "LayerKind",
    "Method",
    "Options",
    "PruneConfig",
    "PruneResult",
    "RecoverResult",
    "SensitivityResult",
    "Solution",
    "accelerate",
    "apply_masks",
    "data",
    "export_onnx",
    "gradual",
    "load",
    "prune",
    "recover",
    "register_gradient_rule",
    "register_layer",
    "register_method",
    "save",
    "sensitivity",
    "solve",
    "zoo",
]
