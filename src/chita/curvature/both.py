"""Gradients and the inputs of layers together: H = (1 - t) Fisher + t layer-wise.

The Fisher matrix knows which weights matter for the loss, but only from a few samples. The inputs
of a layer are known from every token, but not which outputs matter. Their sum, for each layer with
the weights W0, its inputs x and the rows A of gradients, is

    1/2 [ t tr(D M D^T) / m + (1 - t) |A vec(D)|^2 / f ],      D = W - W0

with M the mean of x x^T, and m and f the means of the diagonals of M and A^T A over the weights of
the layer: both parts have the same scale. A is computed once in each stage, at its first weights,
and M block by block behind what is pruned already (`pruning/block_by_block/`).

The first-order term is left out by default: A has few rows, whose losses would fall at the expense
of others. Layers do not correct what A says about the layers before them either, which changed the
loss little in experiments, for better or worse.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from chita.curvature.fisher import Fisher
from chita.curvature.source import LocalModel, no_rows
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.matrix.memory import ENTRY

MOST_ROWS = 64  # of A; each costs two passes over its entries in every product with the curvature
MOST_BYTES = 4 << 30  # of A
LEAST_ROWS = 16  # of A, whatever their size


class InputsAndGradients(Fisher):
    """The gradients of both together; `with_inputs` adds the inputs of a layer.

    A has few rows: each is the mean gradient of several mini-batches if there are more of them.
    """

    by_block = True

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
        return Fisher(fewer).at(w0)


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
