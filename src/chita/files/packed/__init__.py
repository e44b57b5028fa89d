"""Packed files: a state dict without the zeros of its pruned tensors (docs/reference/format.md)."""

from chita.files.packed.load import load
from chita.files.packed.write import save

__all__ = ["load", "save"]
