"""chita: prune trained neural networks by combinatorial optimisation.

A public name is imported on its first use: the command line must do some things before torch is
imported (`__main__.py`), and every import of a module of chita runs this file first. It imports
nothing itself, because Ctrl-C during its imports would print a traceback.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import takes longer than the rest of this file
if TYPE_CHECKING:
    from typing import Any

    from chita import data, gradual, zoo
    from chita.curvature.per_sample import register_gradient_rule
    from chita.deploy.fast import Accelerated, accelerate
    from chita.deploy.onnx_file import export_onnx
    from chita.errors import ChitaError
    from chita.files.packed import load, save
    from chita.methods.registry import Method, register_method
    from chita.model.keep_masks import keep_masks
    from chita.model.layers import LayerKind, register_layer
    from chita.model.masks import apply_masks, masks_of
    from chita.pruning.config import PruneConfig
    from chita.pruning.prune import prune
    from chita.pruning.recovery.recover import recover
    from chita.pruning.recovery.result import RecoverResult
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
    "keep_masks",
    "load",
    "masks_of",
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

_MODULES = {
    "chita.curvature.per_sample": ("register_gradient_rule",),
    "chita.deploy.fast": ("Accelerated", "accelerate"),
    "chita.deploy.onnx_file": ("export_onnx",),
    "chita.errors": ("ChitaError",),
    "chita.files.packed": ("load", "save"),
    "chita.methods.registry": ("Method", "register_method"),
    "chita.model.keep_masks": ("keep_masks",),
    "chita.model.layers": ("LayerKind", "register_layer"),
    "chita.model.masks": ("apply_masks", "masks_of"),
    "chita.pruning.config": ("PruneConfig",),
    "chita.pruning.prune": ("prune",),
    "chita.pruning.recovery.recover": ("recover",),
    "chita.pruning.recovery.result": ("RecoverResult",),
    "chita.pruning.result": ("PruneResult",),
    "chita.pruning.sensitivity": ("SensitivityResult", "sensitivity"),
    "chita.solver": ("Options", "Solution", "solve"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name on its first use (PEP 562)."""
    from importlib import import_module

    if name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
    elif name in __all__:
        value = import_module(f"chita.{name}")
    else:
        raise AttributeError(f"module 'chita' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
