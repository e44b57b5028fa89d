"""Curvature sources: calibration samples in, a local model of the loss around w0 out.

A pruning method names the source that it needs as a class (`Method.curvature`). A run creates the
source once, from a model and its samples, and calls `at` in every stage. To add a source, write a
subclass of `CurvatureSource` and name it in a method: no other file changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from chita.model.losses import Loss
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.matrix.gradient_matrix import GradientMatrix
from chita.solver.matrix.in_memory import HeldMatrix, HeldTarget, Store
from chita.solver.ranks import ALONE, Ranks

CountRows = Callable[[int, int], None]  # finished rows, all rows


@dataclass(frozen=True)
class LocalModel:
    """A quadratic model of the loss around the weights w0, as a method uses it.

    Attributes:
        matrix: A, n x p, or the columns of it that this rank holds; no rows without gradients.
        loss: the mean calibration loss at w0; None if it was not computed.
        alpha: the scale of the first-order term, or the whole term c, (n,).
        sample_gradients: the number of samples whose gradients were computed, over all ranks.
        moments: for each layer the mean of x x^T over its inputs x, (groups, i, i); empty if the
            source does not measure them.
    """

    matrix: GradientMatrix
    loss: float | None = None
    alpha: float | Tensor = 0.0
    sample_gradients: int = 0
    moments: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class SampledModel:
    """A model and the calibration samples that a source reads.

    Attributes:
        model: the model, at the weights w0 whenever `CurvatureSource.at` is called.
        weights: its prunable weights, p in total.
        stream: the samples; each call of `at` continues where the call before stopped.
        rows: n, the rows of A.
        batch: m, the samples averaged into a row.
        loss: the loss that pruning keeps small; None for the default.
        row_loss: the loss whose gradients are the rows of A; None for the default.
        distilled: whether the value of `row_loss` is the first-order term c_i of its row, as it is
            where the outputs of the dense network replace the labels.
        ranks: the processes that share the rows.
        count_rows: called with the rows of A that are finished, and with n.
        store: where A is stored; by default in memory, on the device of the model.
    """

    model: nn.Module
    weights: Weights
    stream: SampleStream
    rows: int
    batch: int
    loss: Loss | None = None
    row_loss: Loss | None = None
    distilled: bool = False
    ranks: Ranks = ALONE
    count_rows: CountRows | None = None
    store: Store = HeldTarget

    @property
    def samples(self) -> int:
        """n m, the samples that one local model is built from."""
        return self.rows * self.batch

    @property
    def alpha(self) -> float:
        """1/m, the scale of the first-order term for rows that are means of m gradients."""
        return 1 / self.batch


@dataclass(frozen=True)
class CurvatureSource(ABC):
    """Builds the local model of each stage.

    Attributes:
        sampled: the model and its calibration samples.
        reads_samples: whether the source needs calibration samples. The local model of a source
            without samples has nothing that a ridge could regularise.
        uses_gradients: whether `LocalModel.matrix` holds gradients. If so, the objective, the
            metrics and the search for dead columns are defined, and A needs memory.
        by_block: whether `chita.prune` measures the inputs of one block of the network after the
            other, each behind blocks that are pruned already. It calls `at` for gradients only.
        dense_outputs: whether it also measures how these inputs differ from those in the dense
            network, so that layers can undo the change.
    """

    sampled: SampledModel
    reads_samples: ClassVar[bool] = True
    uses_gradients: ClassVar[bool] = False
    by_block: ClassVar[bool] = False
    dense_outputs: ClassVar[bool] = False

    @classmethod
    def matrix_rows(cls, rows: int, p: int) -> int:
        """Return the rows of A over p weights, given n mini-batches: n by default."""
        return rows

    @abstractmethod
    def at(self, w0: Tensor) -> LocalModel:
        """Return the local model around w0, (p,), which are the current weights of the model."""


class NoCurvature(CurvatureSource):
    """The source of methods that compare the weights alone, such as magnitude pruning."""

    reads_samples = False

    def at(self, w0: Tensor) -> LocalModel:
        """Return a local model whose A has no rows."""
        return LocalModel(no_rows(w0), alpha=self.sampled.alpha)


def no_rows(w0: Tensor) -> HeldMatrix:
    """Return an A of no rows over the weights w0, (p,)."""
    dtype = torch.promote_types(w0.dtype, torch.float32)
    return HeldMatrix(w0.new_empty((len(w0), 0), dtype=dtype))
