"""Pruning while training (section 4.2), and its rivals."""

from chita.gradual.pruner import GradualPruner
from chita.gradual.schedules import (
    PruningSchedule,
    cosine_restarts,
    linear,
    one_shot,
    polynomial,
)

__all__ = [
    "GradualPruner",
    "PruningSchedule",
    "cosine_restarts",
    "linear",
    "one_shot",
    "polynomial",
]
