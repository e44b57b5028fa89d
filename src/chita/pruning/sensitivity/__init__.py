"""Sensitivity: the loss of the network when a single layer is pruned."""

from chita.pruning.sensitivity.measure import sensitivity
from chita.pruning.sensitivity.result import LayerCurve, LayerScore, SensitivityResult

__all__ = ["LayerCurve", "LayerScore", "SensitivityResult", "sensitivity"]
