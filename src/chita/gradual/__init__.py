"""Pruning while training (section 4.2), and its rivals."""

from chita.gradual.pruner import GradualPruner
from chita.gradual.recipe import GradualRecipe
from chita.gradual.schedules import PruningSchedule, cosine_restarts, linear, one_shot, polynomial
from chita.gradual.trainer import train_sparse

__all__ = [
    "GradualPruner",
    "GradualRecipe",
    "PruningSchedule",
    "cosine_restarts",
    "linear",
    "one_shot",
    "polynomial",
    "train_sparse",
]
