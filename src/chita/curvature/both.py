"""Gradients and the inputs of layers together: H = (1 - t) Fisher + t layer-wise.

The Fisher matrix measures how much each weight changes the loss, but from few samples. The moments
of a layer's inputs are estimated from every token, but treat all outputs as equally important. The
sum, for a layer with the weights W0, its inputs x and the rows A of gradients, is

    1/2 [ t tr(D M D^T) / m + (1 - t) |A vec(D)|^2 / f ],      D = W - W0

with M the mean of x x^T, and m and f the means of the diagonals of M and A^T A over the weights of
the layer: both parts have the same scale. A is computed once in each stage, at its first weights. M
is computed block by block, after the blocks before have been pruned (`pruning/block_by_block/`).

The first-order term is omitted by default: A has few rows, whose losses would fall while those of
other samples rise. A layer does not correct the changes of the loss that A predicts for the layers
before it either. In experiments such corrections changed the loss little, in both directions.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from chita.curvature.fisher import Fisher
from chita.curvature.source import LocalModel, no_rows
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.matrix.memory import ENTRY

# The most rows of A: each costs two passes over its entries in every product with the curvature.
MOST_ROWS = 64
MOST_BYTES = 4 << 30  # the most bytes of A
LEAST_ROWS = 16  # the rows of A that are allowed at any size


class InputsAndGradients(Fisher):
    """The gradients of both together; `with_inputs` adds the inputs of a layer.

    A has few rows: each is the mean gradient of several mini-batches if there are more of them.
    """

    by_block = True
    dense_outputs = True

    @classmethod
    def matrix_rows(cls, rows: int, p: int) -> int:
        """Return the rows of A over p weights: of n mini-batches, several share a row."""
        fitting = MOST_BYTES // (ENTRY * max(p, 1))
        return rows // -(-rows // min(MOST_ROWS, max(fitting, LEAST_ROWS)))

    def at(self, w0: Tensor) -> LocalModel:
        """Return A at w0, (p,), for the samples that come next; the stream does not move."""
        given = self.sampled
        rows = self.matrix_rows(given.rows, given.weights.size)
        stream = given.stream.restarted()
        stream.seek(given.stream.place)
        fewer = replace(given, stream=stream, rows=rows, batch=given.batch * (given.rows // rows))
        return Fisher(fewer, self._checked).at(w0)


def with_inputs(gradients: LocalModel, moment: Tensor, w0: Tensor, share: float) -> LocalModel:
    """Return the local model of a layer that adds gradients and inputs.

    Args:
        gradients: A and c for the weights of the layer.
        moment: the mean of x x^T over its inputs, (groups, i, i).
        w0: its weights with the outputs first, (size,).
        share: t; at 1 the inputs alone remain.
    """
    diagonal = moment.diagonal(dim1=1, dim2=2)
    columns = gradients.matrix.whole().view(len(moment), -1, moment.shape[-1], gradients.matrix.n)
    # An input that is always zero behind pruned layers is dead, whatever it was before.
    columns = columns.masked_fill((diagonal == 0)[:, None, :, None], 0.0)
    size = columns.square().sum(-1).double().mean()
    if share == 1 or not size > 0:
        return LocalModel(no_rows(w0), moments=(moment,))
    factor = float(((1 - share) / size).sqrt())
    return LocalModel(
        HeldMatrix(columns.flatten(0, 2) * factor),
        alpha=torch.as_tensor(gradients.alpha) * factor,
        moments=(moment * (share / diagonal.mean()),),
    )
