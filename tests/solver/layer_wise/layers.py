"""Random layers, and slow, obvious algebra on them."""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.constraints.constraint import ANY_SUPPORT, Constraint
from chita.solver.constraints.pattern import parse_pattern
from chita.solver.layer_wise.gradient_part import GradientPart
from chita.solver.layer_wise.layer import Layer


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def correlated_moment(seed: int, inputs: int, groups: int = 1) -> Tensor:
    """The mean of x x^T over 4 i correlated inputs of very different sizes."""
    mixing = normal(seed, groups, inputs, inputs) * torch.logspace(0, -1.5, inputs)
    x = normal(seed + 1, groups, 4 * inputs, inputs) @ mixing
    moment: Tensor = x.mT @ x / (4 * inputs)
    return moment


def random_layer(
    seed: int,
    rows: int,
    inputs: int,
    *,
    k: int,
    groups: int = 1,
    lam: float = 0.01,
    constraint: Constraint = ANY_SUPPORT,
    dtype: torch.dtype = torch.float64,
) -> Layer:
    return Layer.build(
        normal(seed + 2, groups * rows * inputs).to(dtype),
        correlated_moment(seed, inputs, groups),
        lam=lam,
        k=k,
        constraint=constraint,
    )


def coupled_layer(
    seed: int,
    rows: int,
    inputs: int,
    *,
    k: int,
    groups: int = 1,
    lam: float = 0.01,
    samples: int = 5,
    constraint: Constraint = ANY_SUPPORT,
    dtype: torch.dtype = torch.float64,
    moment: bool = True,
) -> Layer:
    """A layer with gradients whose sizes vary, and, unless `moment` is False, with moments."""
    size = normal(seed + 4, groups, rows, inputs, 1).exp()
    found = correlated_moment(seed, inputs, groups)
    return Layer.build(
        normal(seed + 2, groups * rows * inputs).to(dtype),
        found if moment else torch.zeros_like(found),
        lam=lam,
        k=k,
        constraint=constraint,
        gradients=GradientPart(
            (normal(seed + 3, groups, rows, inputs, samples) * size).to(dtype),
            normal(seed + 5, samples).to(dtype),
        ),
    )


def patterned(name: str, rows: int, inputs: int) -> Constraint:
    """The constraint of a pattern over a matrix."""
    pattern = parse_pattern(name)
    places = pattern.cut(torch.arange(rows * inputs).view(rows, inputs))
    ids = torch.empty(rows * inputs, dtype=torch.int64)
    ids[places] = torch.arange(len(places))[:, None].expand_as(places)
    return pattern.constraint(ids)


def dense_minimiser(layer: Layer, mask: Tensor) -> Tensor:
    """The minimiser on a support, by one solve for each row."""
    w = torch.zeros_like(layer.w0, dtype=torch.float64)
    for g, r in [(g, r) for g in range(len(mask)) for r in range(mask.shape[1])]:
        kept = mask[g, r].nonzero()[:, 0]
        h, w0 = layer.hessian[g], layer.w0[g, r].double()
        w[g, r, kept] = torch.linalg.solve(h[kept][:, kept], (h @ w0)[kept])
    return w


def dense_objective(layer: Layer, w: Tensor) -> float:
    """Q as a sum over rows."""
    d = w.double() - layer.w0.double()
    return sum(
        float(d[g, r] @ layer.hessian[g] @ d[g, r]) / 2
        for g in range(len(d))
        for r in range(d.shape[1])
    )
