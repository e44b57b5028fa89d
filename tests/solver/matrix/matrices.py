"""One matrix in every kind of storage, and what it is as a dense one."""

from __future__ import annotations

import torch
from torch import Tensor

from chita.solver.matrix.gradient_matrix import CHUNK, GradientMatrix
from chita.solver.matrix.half_precision import HalfTarget
from chita.solver.matrix.in_memory import Demand, HeldMatrix, HeldTarget, Target
from chita.solver.matrix.on_disk import FileTarget
from chita.solver.matrix.recomputed import WindowTarget

N, P = 23, CHUNK + 700  # more than one chunk

# The error that rounding an entry to so few bits may make, relative to the entry.
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def dense() -> Tensor:
    """A, (n, p)."""
    return numbers(N, P)


def picked(count: int) -> Tensor:
    """The indices of some columns, sorted."""
    return torch.randperm(P, generator=torch.Generator().manual_seed(1))[:count].sort().values


def demand_of(A: Tensor) -> Demand:
    return Demand(rows=A.shape[0], columns=A.shape[1], dtype=A.dtype, device=A.device)


def write(A: Tensor, target: Target, chunk: int = 4) -> None:
    """The rows of A, a few at a time, as the gradients come."""
    for rows in torch.split(A, chunk):
        for part in torch.split(rows, target.most_rows):
            target.begin(len(part)).put(0, part.t())
            target.end()


def filled(A: Tensor, target: Target) -> GradientMatrix:
    """The matrix of a target that was given the rows of A."""
    write(A, target)
    return target.matrix(lambda other: write(A, other))


def stored(A: Tensor, kind: str) -> GradientMatrix:
    """A in the storage that is asked for."""
    demand, size = demand_of(A), A.shape[1] * A.element_size()
    if kind == "held":
        return filled(A, HeldTarget(demand))
    if kind == "transposed view":
        return HeldMatrix(A.t())
    if kind == "strided view":
        return HeldMatrix(torch.stack([A.t(), A.t()], dim=1).flatten(0, 1)[::2])
    if kind == "file, and gathered columns held":
        return filled(A, FileTarget(demand, dtype=A.dtype, slab=9, room=100 * size))
    if kind == "file, and gathered columns too":
        return filled(A, FileTarget(demand, dtype=A.dtype, slab=100, room=0))
    if kind == "recomputed":
        return filled(A, WindowTarget(demand, P // 3))
    place, name = kind.split()
    dtype = getattr(torch, name)
    if place == "file":
        return filled(A, FileTarget(demand, dtype=dtype, slab=9, room=size))
    return filled(A, HalfTarget(demand, dtype))


EXACT = (
    "held",
    "transposed view",
    "strided view",
    "file, and gathered columns held",
    "file, and gathered columns too",
    "recomputed",
)
ROUNDED = ("held bfloat16", "held float16", "file bfloat16", "file float16")
