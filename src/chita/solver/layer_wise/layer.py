"""The problem of one layer: keep its outputs on the calibration inputs, with k weights.

With M the mean of x x^T over the inputs x, the layer W0 (rows, i) becomes the W that minimises

    Q(W) = 1/2 tr(D H D^T),      D = W - W0,      H = M / m + lambda I

over the allowed supports, where m is the mean of the diagonal of M: lambda is relative to the size
of the inputs. This is the problem of the paper for n >> p, with a separate A of the same Gram
matrix for each row: a product with all rows at once replaces one with A.

A problem may have gradients as well, the rows of A over all weights of the layer:

    Q(W) = 1/2 tr(D H D^T) + 1/2 |A vec(D) + c|^2

M and A^T A are then both divided by the mean m of the diagonal of their sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from chita.solver.algorithm import Layout
from chita.solver.blocks.batched_algebra import definite_factor
from chita.solver.constraints.constraint import AnySupport, Constraint
from chita.solver.constraints.layer_counts import top_k_by_layer, top_k_mask
from chita.solver.constraints.n_of_m import Groups
from chita.solver.layer_wise.gradient_part import GradientPart
from chita.solver.problem import Problem

RELATIVE_RIDGE = 0.01  # the default lambda of the layer-wise methods, as in SparseGPT and ALPS


@dataclass(frozen=True)
class Layer:
    """A layer to prune. Inputs that are always zero are dead: their weights are zero in `w0`.

    Attributes:
        w0: the weights, (groups, rows, i); zero for dead inputs.
        hessian: H, (groups, i, i) in float64; its diagonal is positive.
        squares: the diagonal of M / m, (groups, 1, i) in float64, without the ridge.
        k: the number of weights to keep.
        constraint: the allowed supports over the flattened weights.
        gradients: A and c, divided by the root of m; None without gradients.
    """

    w0: Tensor
    hessian: Tensor
    squares: Tensor
    k: int
    constraint: Constraint
    gradients: GradientPart | None = None

    @classmethod
    def build(
        cls,
        w0: Tensor,
        moment: Tensor,
        *,
        lam: float,
        k: int,
        constraint: Constraint,
        gradients: GradientPart | None = None,
    ) -> Layer:
        """Build the problem from the moments of the inputs.

        Args:
            w0: the weights of the layer, (size,).
            moment: the mean of x x^T, (groups, i, i).
            lam: the ridge relative to m, the mean of the diagonal of `moment`, or of its sum with
                A^T A.
            k: the number of weights to keep.
            constraint: the allowed supports of these weights.
            gradients: A and c; None without gradients.
        """
        diagonal = moment.diagonal(dim1=1, dim2=2).double()
        unit, dead = diagonal.mean(), diagonal == 0
        if gradients is not None:
            own = gradients.squares().double()
            unit, dead = unit + own.mean(), dead & (own == 0).all(1)
        unit = torch.where(unit > 0, unit, 1.0)
        hessian = moment.double() / unit
        squares = hessian.diagonal(dim1=1, dim2=2)[:, None].clone()
        hessian.diagonal(dim1=1, dim2=2).add_(lam + dead.double())
        w = w0.view(len(moment), -1, moment.shape[-1])
        part = None if gradients is None else gradients.scaled(float(1 / unit.sqrt()))
        return cls(w.masked_fill(dead[:, None], 0.0), hessian, squares, k, constraint, part)

    @cached_property
    def diagonal(self) -> Tensor:
        """The diagonal of H, (groups, 1, i), in the type of the weights."""
        return self.hessian.diagonal(dim1=1, dim2=2)[:, None].to(self.w0.dtype)

    @cached_property
    def products(self) -> Tensor:
        """H in the type of the weights, for products that need no more precision."""
        return self.hessian.to(self.w0.dtype)

    @cached_property
    def factor(self) -> Tensor:
        """The lower Cholesky factor of H, (groups, i, i).

        Raises:
            ChitaError: H is singular, which a ridge prevents.
        """
        return definite_factor(self.hessian)

    def check_definite(self) -> None:
        """Raise a ChitaError if H is singular."""
        _ = self.factor

    @cached_property
    def inverse(self) -> Tensor:
        """H^-1, (groups, i, i)."""
        return torch.cholesky_inverse(self.factor)

    def pick(self, scores: Tensor) -> Tensor:
        """Return the allowed support with the largest |scores|, as a mask of the same shape."""
        if self.whole:
            return top_k_mask(scores.abs(), self.k)
        kept = self.constraint.largest(scores.flatten(), self.k)
        mask = torch.zeros(scores.numel(), dtype=torch.bool, device=scores.device)
        return mask.index_fill_(0, kept, True).view_as(scores)

    def pick_by_row(self, scores: Tensor) -> Tensor:
        """Return the largest |scores| of each row, as many in every row, as a mask.

        A pattern decides within its own groups instead. If the rows do not divide k, some rows keep
        one weight more than others.
        """
        if not self.whole:
            return self.pick(scores)
        rows = scores.abs().flatten(0, 1)
        upto = torch.arange(len(rows) + 1, device=rows.device) * self.k // len(rows)
        order = rows.argsort(dim=1, descending=True, stable=True)
        places = torch.arange(rows.shape[1], device=rows.device)
        chosen = places < upto.diff()[:, None]
        return torch.zeros_like(chosen).scatter_(1, order, chosen).view_as(scores)

    @property
    def whole(self) -> bool:
        """Whether any k weights of the layer are allowed."""
        constraint = self.constraint
        one_group = isinstance(constraint, Groups) and len(constraint.sizes) == 1
        return isinstance(constraint, AnySupport) or one_group

    def gradient(self, w: Tensor) -> Tensor:
        """Return grad Q at w, (groups, rows, i), in the type of w: one product with H."""
        d = w - self.w0
        gradient = d @ (self.products if w.dtype == self.w0.dtype else self.hessian.to(w.dtype))
        if self.gradients is None:
            return gradient
        return gradient + self.gradients.adjoint(self.gradients.residual(d))

    def objective(self, w: Tensor) -> float:
        """Return Q(w), with products in the type of w and sums in float64."""
        d = w - self.w0.to(w.dtype)
        own = float((d @ self.hessian.to(w.dtype)).mul_(d).sum(dtype=torch.float64)) / 2
        if self.gradients is None:
            return own
        return own + float(self.gradients.residual(d).double().square().sum()) / 2


def layers_of(problem: Problem, k: int, layout: Layout) -> Iterator[Layer]:
    """Yield the layers of a problem with moments; each keeps the same share of its weights.

    The rows of A, if there are any, are gradients that couple the rows of each layer.

    Args:
        problem: the problem, with the moments of each layer.
        k: the number of weights that all layers keep together.
        layout: the sizes of the layers.
    """
    counts = _kept_of_each(problem, k, layout)
    start = 0
    for size, moment, count in zip(layout.layers, problem.moments, counts, strict=True):
        index = torch.arange(start, start + size, device=problem.w0.device)
        yield Layer.build(
            problem.w0[start : start + size],
            moment,
            lam=problem.mu,
            k=count,
            constraint=problem.constraint.restrict(index),
            gradients=_gradients(problem, start, len(moment), moment.shape[-1], size),
        )
        start += size


def _kept_of_each(problem: Problem, k: int, layout: Layout) -> list[int]:
    """Return how many of k weights each layer keeps."""
    if len(layout.layers) == 1:
        return [k]
    kept = top_k_by_layer(problem.w0, k, layout.layers, problem.constraint)
    mask = torch.zeros_like(problem.w0, dtype=torch.bool).index_fill_(0, kept, True)
    return [int(part.count_nonzero()) for part in torch.split(mask, list(layout.layers))]


def _gradients(
    problem: Problem, start: int, groups: int, inputs: int, size: int
) -> GradientPart | None:
    """Return the gradients of the layer of this size at `start`; None without gradients."""
    matrix = problem.matrix
    if matrix.n == 0:
        return None
    columns = matrix.read(start, start + size).view(groups, -1, inputs, matrix.n)
    return GradientPart(columns, problem.offset)
