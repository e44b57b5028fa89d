"""The same algebra on explicit dense inverses, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from chita.methods.surgeon_inverse import all_blocks
from chita.solver.algorithm import Layout
from chita.solver.problem import Problem


def dense_hessian(problem: Problem, layout: Layout | None = None) -> Tensor:
    """A^T A + mu I; with a layout, zero outside its blocks."""
    stored = problem.matrix.whole().double()
    hessian = stored @ stored.t() + problem.mu * torch.eye(len(stored), dtype=torch.float64)
    if layout is None:
        return hessian
    return torch.block_diag(*(hessian[a:b, a:b] for a, b in all_blocks(layout)))


def dense_inverse(problem: Problem, layout: Layout | None = None) -> Tensor:
    return torch.linalg.inv(dense_hessian(problem, layout))


def dense_surgeon(problem: Problem, k: int, inverse: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """The summed update around w, weight by weight, and the support it leaves."""
    statistic = [float(w[i] ** 2 / inverse[i, i]) for i in range(len(w))]
    order = sorted(range(len(w)), key=lambda i: statistic[i])
    removed = order[: len(w) - k]
    moved = w.clone()
    for i in removed:
        moved -= inverse[:, i] * w[i] / inverse[i, i]
    moved[removed] = 0.0
    return moved, torch.tensor(sorted(order[len(w) - k :]), dtype=torch.int64)


def dense_one_by_one(problem: Problem, k: int) -> tuple[Tensor, Tensor]:
    """OBS with the inverse of what is left computed anew for every removal."""
    hessian, w = dense_hessian(problem), problem.w0.double().clone()
    left = list(range(len(w)))
    while len(left) > k:
        inverse = torch.linalg.inv(hessian[left][:, left])
        costs = w[left] ** 2 / inverse.diagonal()
        i = int(costs.argmin())
        w[left] -= inverse[:, i] * w[left[i]] / inverse[i, i]
        w[left[i]] = 0.0
        del left[i]
    return w, torch.tensor(left, dtype=torch.int64)
