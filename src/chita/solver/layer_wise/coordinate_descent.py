"""Cyclic coordinate descent on a layer: all rows at once, one column after the other.

The rows are independent, so that one step minimises over a column in every row that keeps it. The
gradient of a block of columns is computed once, by a product with H, and within the block it is
updated after each column.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.coordinate_descent import BLOCK
from chita.solver.layer_wise.layer import Layer


def sweep(layer: Layer, w: Tensor, mask: Tensor) -> Tensor:
    """Return the point after one cycle over the columns, (groups, rows, i); Q never rises.

    Args:
        layer: the layer.
        w: a point that is zero outside the mask, (groups, rows, i).
        mask: the support, of the same shape.
    """
    w, hessian = w.clone(), layer.products
    step = mask / layer.diagonal
    for start in range(0, w.shape[-1], BLOCK):
        block = slice(start, min(start + BLOCK, w.shape[-1]))
        gradient = (w - layer.w0) @ hessian[:, :, block]
        within = hessian[:, block, block]
        moves = torch.zeros_like(gradient)
        for j in range(gradient.shape[-1]):
            move = gradient[..., j] * -step[..., start + j]
            moves[..., j] = move
            gradient += move[..., None] * within[:, None, j]
        w[..., block] += moves
    return w
