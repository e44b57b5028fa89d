"""chita: prune trained neural networks by combinatorial optimisation."""

from chita.errors import ChitaError

__all__ = ["ChitaError"]
