"""chita: prune trained neural networks by combinatorial optimisation."""

from chita.config import PruneConfig
from chita.errors import ChitaError
from chita.fast import Accelerated, accelerate
from chita.l0 import Options, Solution, solve
from chita.onnx_file import export_onnx
from chita.packed import load, save
from chita.prune import prune
from chita.result import PruneResult
from chita.sensitivity import SensitivityResult, sensitivity
from chita.weights import apply_masks

__version__ = "0.1.0"

__all__ = [
    "Accelerated",
    "ChitaError",
    "Options",
    "PruneConfig",
    "PruneResult",
    "SensitivityResult",
    "Solution",
    "accelerate",
    "apply_masks",
    "export_onnx",
    "load",
    "prune",
    "save",
    "sensitivity",
    "solve",
]
