from itertools import combinations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita.errors import ChitaError
from chita.solver.constraints.tiles import Tiles
from chita.solver.stepsize import Path
from tests.solver.problems import random_problem, sparse_point

IDS = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4, 4, 3])  # five tiles of two, not in a row


def norms(x: Tensor) -> list[float]:
    return [float(x[tile == IDS].double().norm()) for tile in range(5)]


def best(x: Tensor, count: int) -> list[int]:
    worth = norms(x)
    tiles = max(combinations(range(5), count), key=lambda some: sum(worth[t] for t in some))
    return [i for i in range(10) if int(IDS[i]) in tiles]


@given(st.integers(0, 10**6), st.integers(0, 10))
@settings(deadline=None)
def test_the_tiles_of_largest_norm_are_kept_whole(seed: int, k: int) -> None:
    x = torch.randn(10, generator=torch.Generator().manual_seed(seed))
    w, support = Tiles(IDS).project(x, k)
    assert support.tolist() == best(x, k // 2)
    assert torch.equal(w[support], x[support])
    assert int((w != 0).sum()) == len(support)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 5))
@settings(deadline=None)
def test_the_first_breaking_point_is_the_one_of_a_fine_scan(
    seed: int, count: int, zeros: int
) -> None:
    """Also where tiles of the support are zero, whole or in part."""
    problem = random_problem(seed, p=10, constraint=Tiles(IDS))
    values = torch.randn(10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    support = problem.largest(values, 2 * count)
    values = values[support]
    values[:zeros] = 0.0
    x = sparse_point(problem, support, values)
    path = Path(problem, x, 2 * count)
    tau_c = path.first_breaking_point()
    assume(tau_c > 1e-8)
    for share in (1e-6, 0.1, 0.5, 0.9, 1 - 1e-6):
        assert best(x.w - min(tau_c, 1e5) * share * path.g, count) == path.support.tolist()
    if tau_c < torch.inf:
        assert best(x.w - tau_c * (1 + 1e-6) * path.g, count) != path.support.tolist()


def test_a_restriction_to_whole_tiles_knows_them() -> None:
    index = (IDS >= 2).nonzero()[:, 0]
    x = torch.randn(10, generator=torch.Generator().manual_seed(0))
    kept = index[Tiles(IDS).restrict(index).largest(x[index], 4)]
    assert kept.tolist() == Tiles(IDS).largest(torch.where(IDS >= 2, x, 0.0), 4).tolist()


def test_a_tile_that_is_cut_is_an_error() -> None:
    with pytest.raises(ChitaError, match="cut"):
        Tiles(IDS).block(0, 5, torch.ones(5, dtype=torch.bool))
