"""Faster forms of pruned layers, chosen by measurement."""

from chita.deploy.fast.accelerate import Accelerated, accelerate

__all__ = ["Accelerated", "accelerate"]
