"""SparseGPT (Frantar and Alistarh, 2023): the OBS update in one pass over the columns.

U is the upper Cholesky factor of H^-1. The columns are visited in order. A weight w_j that is
removed changes the later columns of its row by -(w_j / U_jj) U_j: at once within a block of 128
columns, and by one product for all columns after the block. The mask of a block is chosen when the
pass reaches it, by the smallest w_j^2 / U_jj^2 of all rows; that of N:M, group by group.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.curvature.layer_inputs import BlockInputs
from chita.methods.registry import Method
from chita.solver.blocks.batched_algebra import definite_factor
from chita.solver.constraints.n_of_m import Groups
from chita.solver.constraints.pattern import first_cut
from chita.solver.constraints.tiles import Tiles
from chita.solver.layer_wise.each_layer import EachLayer, PrunedLayer
from chita.solver.layer_wise.layer import RELATIVE_RIDGE, Layer
from chita.solver.options import Options

BLOCK = 128  # columns between two updates of all later columns


def sparsegpt(layer: Layer, options: Options) -> PrunedLayer:
    """Return the weights of a layer and the mask of those that stay."""
    w = layer.w0.clone()
    mask = torch.zeros_like(w, dtype=torch.bool)
    upper = definite_factor(layer.inverse).mT.to(w.dtype)
    width = _selected_together(layer)
    block = max(1, BLOCK // width) * width
    for start in range(0, w.shape[-1], block):
        stop = min(start + block, w.shape[-1])
        errors = torch.zeros_like(w[..., start:stop])
        for j in range(start, stop):
            if (j - start) % width == 0:
                chosen = slice(j, min(j + width, stop))
                mask[..., chosen] = _select(layer, w, upper, chosen)
            error = w[..., j] * ~mask[..., j] / upper[:, None, j, j]
            w[..., j:stop] -= error[..., None] * upper[:, None, j, j:stop]
            errors[..., j - start] = error
        w[..., stop:] -= errors @ upper[:, start:stop, stop:]
    return PrunedLayer(w * mask, mask)


def _select(layer: Layer, w: Tensor, upper: Tensor, chosen: slice) -> Tensor:
    """Return the mask of some columns, (groups, rows, columns), given the present weights."""
    scores = w[..., chosen] / upper.diagonal(dim1=1, dim2=2)[:, None, chosen]
    places = torch.arange(w.numel(), device=w.device).view_as(w)[..., chosen].flatten()
    kept = _kept_before(layer, chosen.stop) - _kept_before(layer, chosen.start)
    part = layer.constraint.restrict(places).largest(scores.flatten(), kept)
    mask = torch.zeros(scores.numel(), dtype=torch.bool, device=w.device)
    return mask.index_fill_(0, part, True).view_as(scores)


def _kept_before(layer: Layer, columns: int) -> int:
    """Return how many weights the first columns keep: their share of k, in whole tiles."""
    constraint = layer.constraint
    unit = constraint.tiles.shape[1] if isinstance(constraint, Tiles) else 1
    return layer.k // unit * columns // layer.w0.shape[-1] * unit


def _selected_together(layer: Layer) -> int:
    """Return the number of adjacent columns whose mask is chosen at once."""
    if layer.whole:
        return BLOCK
    assert isinstance(layer.constraint, Groups | Tiles)
    unit = first_cut(layer.constraint.ids.view(layer.w0.shape).flatten(0, 1))
    if isinstance(layer.constraint, Groups):
        return unit
    return max(1, BLOCK // unit) * unit  # tiles compete with others of the same columns


SPARSEGPT = Method("sparsegpt", BlockInputs, EachLayer(sparsegpt), ridge=RELATIVE_RIDGE)
