"""GradientMatrix: where the columns of A live, and the few products the solvers need.

A is n x p (n samples, p weights). It is stored with each weight's n entries together, as a (p, n)
tensor, because every solver picks columns of A by support: here that is a gather of whole rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.errors import ChitaError


class GradientMatrix:
    """The n x p matrix A of gradients, column by column.

    Args:
        columns: (p, n) float32 or float64 tensor on any device; row j is column j of A.
    """

    def __init__(self, columns: Tensor) -> None:
        if columns.ndim != 2 or not columns.is_floating_point():
            raise ChitaError(
                "A must be a two-dimensional float matrix, got shape "
                f"{tuple(columns.shape)} of {columns.dtype}"
            )
        self.stored = columns

    @property
    def n(self) -> int:
        """Samples: rows of A."""
        return self.stored.shape[1]

    @property
    def p(self) -> int:
        """Weights: columns of A."""
        return self.stored.shape[0]
