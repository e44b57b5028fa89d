"""The weights whose outputs are nearest to those of the dense network, before pruning.

The layers before a layer are pruned, so that its inputs are x instead of d. The outputs W0 x differ
from those of the dense network, W0 d, and some of that can be undone: with M the mean of x x^T and
C that of x d^T, the mean of |W x - W0 d|^2, with a ridge around W0, has the minimiser

    W0 + W0 (C - M)^T (M + m lambda I)^-1,      m the mean of the diagonal of M.

A layer that undoes all of the change ends worse than one that undoes half of it: its inputs fit the
calibration samples, and the blocks of a transformer pass their own errors on beside it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.constraints.constraint import ANY_SUPPORT
from chita.solver.layer_wise.layer import Layer

SHARE = 0.5  # of the change that a layer undoes
LEAST_RIDGE = 1e-4  # with which H is definite: inputs may be linearly dependent, and lambda zero


def nearer_to_dense(w0: Tensor, moment: Tensor, products: Tensor, lam: float) -> Tensor:
    """Return the weights that undo SHARE of the change.

    Args:
        w0: the weights of the layer with the outputs first, (size,).
        moment: the mean of x x^T, (groups, i, i).
        products: the mean of x d^T, (groups, i, i).
        lam: the ridge relative to m; LEAST_RIDGE is used if it is smaller.
    """
    ridge = max(lam, LEAST_RIDGE)
    layer = Layer.build(w0, moment, lam=ridge, k=w0.numel(), constraint=ANY_SUPPORT)
    unit = moment.diagonal(dim1=1, dim2=2).double().mean()
    if not unit > 0:  # all inputs are zero
        return w0
    missing = layer.w0.double() @ (products - moment).mT.double() / unit
    change = torch.cholesky_solve(missing.mT, layer.factor).mT
    return w0 + SHARE * change.flatten().to(w0.dtype)
