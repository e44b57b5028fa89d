"""Pruned networks that run faster, where measurement says that they do."""

from chita.deploy.fast.accelerate import Accelerated, accelerate

__all__ = ["Accelerated", "accelerate"]
