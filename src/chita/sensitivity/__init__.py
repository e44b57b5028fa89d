"""Sensitivity: what each layer costs the network when it alone is pruned."""

from chita.sensitivity.measure import sensitivity
from chita.sensitivity.result import LayerCurve, Score, SensitivityResult

__all__ = ["LayerCurve", "Score", "SensitivityResult", "sensitivity"]
