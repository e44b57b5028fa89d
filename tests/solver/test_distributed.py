"""Ranks against one process alone: the same sums, the same order, the same solutions."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.algorithm import Layout
from chita.solver.constraints.constraint import top_k
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.ranks import ALONE, Ranks, joined_ranks
from chita.solver.solve import ALGORITHMS, solve_problem
from tests.support.gloo import on_ranks
from tests.support.messages import says

N, P, BLOCK = 30, 1200, 100
SOLVES: list[tuple[str, int, dict[str, Any], int | None]] = [
    ("bso", 300, {"iterations": 20}, None),
    ("bso", 20, {"iterations": 20}, None),  # k <= n: the k x k system
    ("bso", 100, {"iterations": 5, "continuation": 4}, None),
    ("bso", 300, {"iterations": 20, "active": 0}, None),
    ("bso", 300, {"iterations": 5, "step": "lipschitz"}, None),
    ("bso", 300, {"iterations": 5, "step": "backtracking"}, None),
    ("cd", 300, {"iterations": 20}, None),
    ("cd", 0, {}, None),
    ("bso", 300, {"iterations": 5}, BLOCK),
    ("cd", 300, {"iterations": 5}, BLOCK),
]


def given() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    scale = torch.rand(P, 1, generator=draw, dtype=torch.float64)
    A = torch.randn(P, N, generator=draw, dtype=torch.float64) * scale
    w0 = torch.randn(P, generator=draw, dtype=torch.float64)
    return A, w0.round(decimals=1)  # with ties


def share(ranks: Ranks) -> tuple[int, int]:
    """The columns of a rank; unequal shares, cut where blocks end."""
    cuts = [0, *(BLOCK * (12 * r // ranks.size - (r == 1)) for r in range(1, ranks.size)), P]
    return list(pairwise(cuts))[ranks.rank]


def solutions(ranks: Ranks) -> list[tuple[Tensor, Tensor, float]]:
    A, w0 = given()
    start, stop = share(ranks)
    found = []
    for method, k, options, block in SOLVES:
        matrix = HeldMatrix(A[start:stop].clone(), ranks)
        problem = Problem.build(matrix, w0[start:stop], lam=0.01, alpha=1.0)
        layout = Layout((stop - start,), block)
        solution = solve_problem(
            problem, k, ALGORITHMS[method], options=Options(**options), layout=layout
        )
        w, support = ranks.gather(solution.w), ranks.gather(solution.support + start)
        found.append((w, support, solution.objective))
    return found


def on_rank(rank: int) -> Any:
    A, w0 = given()
    with joined_ranks() as ranks:
        start, stop = share(ranks)
        for x in (w0, A[:, 0].float(), torch.zeros(P)):
            for k in (0, 1, 17, 600, P - 1, P):
                found = ranks.gather(top_k(x[start:stop], k, ranks) + start)
                assert torch.equal(found, top_k(x, k)), (x.dtype, k)
        assert ranks.total(rank + 1) == ranks.size * (ranks.size + 1) // 2
        assert ranks.least(rank + 3) == 3
        assert ranks.before(5) == 5 * rank
        assert ranks.all(True)
        assert not ranks.all(rank != 0)
        assert torch.equal(ranks.broadcast(torch.tensor([rank]), 1), torch.tensor([1]))
        # Rows for columns: the rank's rows of all columns come back as its columns of all rows.
        counts, bounds = [rank + 2 for rank in range(ranks.size)], [0, 3]
        bounds += [10 * r for r in range(2, ranks.size + 1)]
        rows = list(torch.arange(sum(counts) * bounds[-1]).view(bounds[-1], -1).split(counts, 1))
        mine = torch.cat(rows, 1)[bounds[rank] : bounds[rank + 1]]
        assert torch.equal(torch.cat(ranks.exchange(rows[rank], bounds, counts), 1), mine)
        return solutions(ranks)


@pytest.mark.slow
def test_ranks_find_what_one_process_finds() -> None:
    alone = solutions(ALONE)
    for found in on_ranks(4, on_rank):
        if isinstance(found, Exception):
            raise found
        for setting, ours, theirs in zip(SOLVES, found, alone, strict=True):
            assert torch.equal(ours[1], theirs[1]), setting
            torch.testing.assert_close(ours[0], theirs[0], rtol=1e-6, atol=1e-8)
            assert ours[2] == pytest.approx(theirs[2], rel=1e-8), setting


def fail(rank: int, how: str) -> None:
    with joined_ranks() as ranks:
        ranks.sum(torch.ones(1))
        if rank == 1:
            if how == "dies":
                os._exit(9)
            raise ValueError("the disk is full")
        for _ in range(3):
            ranks.sum(torch.ones(1))


@pytest.mark.slow
def test_a_rank_that_throws_ends_the_others_with_its_error() -> None:
    first, second = on_ranks(2, fail, "throws")
    assert isinstance(second, ValueError)
    assert isinstance(first, ChitaError)
    assert says(str(first), "rank 1", "ValueError: the disk is full")


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_others() -> None:
    first, second = on_ranks(2, fail, "dies")
    assert second == 9
    assert isinstance(first, ChitaError)
    assert says(str(first), "rank")


def test_without_a_process_group_there_is_one_rank() -> None:
    with joined_ranks() as ranks:
        assert ranks is ALONE
        assert torch.equal(ranks.sum(torch.ones(2)), torch.ones(2))
