"""Dead columns: how they are found, and that solving without them is the same as deleting them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita.methods import METHODS
from chita.solver.algorithm import Layout
from chita.solver.constraints.constraint import ANY_SUPPORT
from chita.solver.constraints.n_of_m import Groups
from chita.solver.constraints.tiles import Tiles
from chita.solver.dead_columns import DeadColumns, column_sizes
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.solve import ALGORITHMS, Solution, solve_problem
from tests.solver.limits import Limits, limits
from tests.solver.matrix.matrices import EXACT, ROUNDED, P, dense, stored
from tests.solver.problems import brute_force, dense_objective, random_problem

DEAD = [1, 4, 5, 11, 14]  # of 16 columns
LIVE = [j for j in range(16) if j not in DEAD]
RIVALS = ("obd", "obs", "woodfisher", "woodtaylor", "m-fac", "cbs")


def dead_columns(index: list[int], p: int) -> DeadColumns:
    return DeadColumns(
        torch.zeros(p, dtype=torch.bool).index_fill_(0, torch.tensor(index), True), len(index)
    )


def with_dead(problem: Problem) -> Problem:
    """The problem with zeros in the columns DEAD, whose weights are the largest of all."""
    columns, w0 = problem.matrix.whole().clone(), problem.w0.clone()
    columns[DEAD] = 0.0
    w0[DEAD] = torch.arange(10.0, 10.0 + len(DEAD), dtype=w0.dtype)
    return replace(problem, matrix=HeldMatrix(columns), w0=w0)


def only_live(problem: Problem) -> Problem:
    """The problem without the columns DEAD."""
    index = torch.tensor(LIVE)
    return replace(problem, matrix=problem.matrix.columns(index), w0=problem.w0[index])


def solve(problem: Problem, k: int, method: str = "bso", **options: Any) -> Solution:
    algorithm = METHODS[method].algorithm if method in METHODS else ALGORITHMS[method]
    layout = Layout((problem.matrix.p,), options.pop("block_size", None))
    dead = dead_columns(DEAD, problem.matrix.p)
    return dead.solve(problem, k, algorithm, options=Options(**options), layout=layout)


def test_a_column_is_dead_by_its_entries_and_not_by_their_squares() -> None:
    """The squares of the smallest numbers are zero."""
    for dtype in (torch.float32, torch.float64):
        columns = torch.zeros(4, 3, dtype=dtype)
        columns[1, 2] = -torch.finfo(dtype).tiny
        columns[2, 0] = torch.nan
        found = column_sizes(HeldMatrix(columns))
        assert found.nonzero.tolist() == [False, True, True, False]
        assert found.squares[1] == 0


@pytest.mark.parametrize("kind", [*EXACT, *ROUNDED])
def test_dead_columns_are_found_in_every_storage(kind: str) -> None:
    A = dense().float()
    some = torch.tensor([0, 7, 4095, 4096, P - 1])  # over more than one piece
    A[:, some] = 0.0
    found = column_sizes(stored(A, kind))
    assert torch.equal((~found.nonzero).nonzero()[:, 0], some)
    torch.testing.assert_close(found.squares, A.square().sum(0), rtol=0.02, atol=0)


def test_what_half_precision_cannot_store_is_dead() -> None:
    """As documented: 2^-39 of the largest entry of a row, or less."""
    A = dense().float()
    A[:, 3] = 1e-20
    nonzero = {kind: column_sizes(stored(A, kind)).nonzero[3] for kind in (*EXACT, *ROUNDED)}
    assert {kind for kind, live in nonzero.items() if not live} <= set(ROUNDED)
    assert not nonzero["held float16"] and nonzero["held bfloat16"]


def test_a_layer_without_live_columns_is_exempt() -> None:
    nonzero = torch.tensor([True, False, False, False, False, True, True])
    found = DeadColumns.find(nonzero, [3, 1, 3], part=slice(None))
    assert found.columns.tolist() == [False, True, True, False, True, False, False]
    assert found.count == 3
    part = DeadColumns.find(nonzero, [3, 1, 3], part=slice(2, 5))
    assert part.columns.tolist() == [True, False, True] and part.count == 3


@pytest.mark.parametrize("method", ["bso", "cd", "iht", *RIVALS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropped_columns_might_as_well_be_deleted(method: str, dtype: torch.dtype) -> None:
    for seed in range(5):
        problem = with_dead(random_problem(seed, dtype=dtype))
        algorithm = METHODS[method].algorithm if method in METHODS else ALGORITHMS[method]
        for k in (1, 4, 9):
            found = solve(problem, k, method, active=0.0)
            live = only_live(problem)
            truth = solve_problem(live, k, algorithm, options=Options(active=0.0))
            assert found.support.tolist() == [LIVE[i] for i in truth.support]
            torch.testing.assert_close(found.w[LIVE], truth.w)
            assert not found.w[DEAD].any()


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_objective_is_that_of_the_whole_problem(k: int) -> None:
    """The ridge of the dead weights included, which are gone; no support of live ones is better
    than the best of all."""
    problem = with_dead(random_problem(k))
    found = solve(problem, k, continuation=10)
    assert found.objective == pytest.approx(dense_objective(problem, found.w))
    assert found.history[-1] == found.objective and found.history == sorted(found.history)[::-1]
    ridge = problem.mu / 2 * float(problem.w0[DEAD].square().sum())
    assert found.objective >= brute_force(only_live(problem), k) + ridge - 1e-9


def test_without_the_drop_dead_weights_stay() -> None:
    """What the drop is for: here all of them would be kept."""
    problem = with_dead(random_problem(0))
    plain = solve_problem(problem, 6, ALGORITHMS["bso"], options=Options(iterations=5))
    assert set(DEAD) <= set(plain.support.tolist())
    assert not set(DEAD) & set(solve(problem, 6, iterations=5).support.tolist())


@pytest.mark.parametrize("method", ["bso", "cd", "obd", "m-fac", "obs"])
@pytest.mark.parametrize("options", [{}, {"block_size": 5}], ids=["whole", "blocks"])
def test_dead_weights_complete_the_support_as_they_were(
    method: str, options: dict[str, Any]
) -> None:
    """The largest first, none of them moved, where k is more than the live columns."""
    problem = with_dead(random_problem(1))
    for missing in range(len(DEAD) + 1):
        found = solve(problem, len(LIVE) + missing, method, **options)
        kept = DEAD[len(DEAD) - missing :]
        assert found.support.tolist() == sorted(LIVE + kept)
        assert torch.equal(found.w[kept], problem.w0[kept])
        assert found.objective == pytest.approx(dense_objective(problem, found.w))


@pytest.mark.parametrize("method", ["bso", "cd"])
def test_live_weights_that_are_zero_grow_before_dead_ones_stay(method: str) -> None:
    """As in a later stage: the trained weights that are left are fewer than k."""
    problem = with_dead(random_problem(2))
    w0 = problem.w0.clone()
    w0[LIVE[5:]] = 0.0
    found = solve(replace(problem, w0=w0), 8, method)
    assert len(found.support) == 8 and not set(DEAD) & set(found.support.tolist())
    assert int(found.w.count_nonzero()) == 8


def test_without_dead_columns_nothing_changes() -> None:
    problem = random_problem(3)
    dead = DeadColumns.find(column_sizes(problem.matrix).nonzero, [16], part=slice(None))
    options, layout = Options(), Layout((16,))
    found = dead.solve(problem, 5, ALGORITHMS["bso"], options=options, layout=layout)
    truth = solve_problem(problem, 5, ALGORITHMS["bso"], options=options, layout=layout)
    assert torch.equal(found.w, truth.w) and found == replace(
        truth, w=found.w, support=found.support
    )
    assert dead.drop(problem.w0) is problem.w0


def best_completion(w0: Tensor, live: set[int], dead: list[int], allowed: list[list[int]]) -> float:
    """The most that the dead weights of an allowed support come to, whose live part is given."""
    sizes = w0.abs().tolist()
    fitting = [s for s in allowed if set(s) - set(dead) == live]
    return max(sum(sizes[j] for j in support if j in dead) for support in fitting)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_within_limits_the_completion_is_the_best(data: st.DataObject) -> None:
    rule: Limits = data.draw(limits())
    p = len(rule.ids)
    dead = data.draw(st.lists(st.integers(0, p - 1), unique=True, min_size=1))
    w0 = torch.randn(p, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 999))))
    allowed = list(rule.supports())
    support = data.draw(st.sampled_from(allowed))
    columns = dead_columns(dead, p)
    found = columns.complete(torch.tensor(support, dtype=torch.int64), w0, constraint=rule.groups)
    assert rule.allow(found.tolist())
    live = set(support) - set(dead)
    assert live <= set(found.tolist())
    reached = float(w0.abs()[[j for j in found.tolist() if j in dead]].sum())
    assert reached >= best_completion(w0, live, dead, allowed) - 1e-6


def test_two_of_four_are_live_wherever_two_are() -> None:
    """Of groups with fewer live columns the largest dead weights stay."""
    groups = Groups(torch.arange(16) // 4, torch.full((4,), 2), torch.full((4,), 2))
    problem = with_dead(random_problem(4, constraint=groups))  # dead: 1 | 4 5 | 11 | 14
    found = solve(problem, 8)
    assert torch.bincount(found.support // 4).tolist() == [2, 2, 2, 2]
    assert not set(DEAD) & set(found.support.tolist())
    columns = problem.matrix.whole().clone()
    columns[6] = 0.0
    dead = dead_columns([*DEAD, 6], 16)
    fewer = dead.solve(
        replace(problem, matrix=HeldMatrix(columns)),
        8,
        ALGORITHMS["bso"],
        options=Options(),
        layout=Layout((16,)),
    )
    assert [j for j in fewer.support.tolist() if 4 <= j < 8] == [
        5,
        7,
    ]  # 5 is the largest of 4, 5, 6
    assert fewer.w[5] == problem.w0[5]


def test_tiles_count_by_their_live_weights_and_are_kept_whole() -> None:
    tiles = Tiles(torch.arange(16) // 2)  # 4 and 5 are a tile
    problem = with_dead(random_problem(5, constraint=tiles))
    sizes = problem.w0.masked_fill(torch.tensor([j in DEAD for j in range(16)]), 0.0)
    largest = sizes.view(8, 2).norm(dim=1).topk(3).indices
    found = solve(problem, 6, iterations=0)
    assert sorted(set((found.support // 2).tolist())) == sorted(largest.tolist())
    kept = [j for j in found.support.tolist() if j in DEAD]
    assert torch.equal(found.w[kept], problem.w0[kept])  # beside a live one
    everything_else = solve(problem, 14)
    assert 2 not in (everything_else.support // 2).tolist()


@pytest.mark.parametrize("constraint", [ANY_SUPPORT, Tiles(torch.arange(16) // 2)])
def test_a_support_without_dead_columns_is_left_alone(constraint: Any) -> None:
    live = torch.tensor([2, 3, 6, 7])
    found = dead_columns(DEAD, 16).complete(live, torch.ones(16), constraint=constraint)
    assert found is live


def test_all_pairs_of_dead_columns() -> None:
    """Brute force over what is dead: k = 3 of 6 columns."""
    for first, second in combinations(range(6), 2):
        problem = random_problem(first, n=4, p=6)
        columns = problem.matrix.whole().clone()
        columns[[first, second]] = 0.0
        problem = replace(problem, matrix=HeldMatrix(columns))
        dead = DeadColumns.find(column_sizes(problem.matrix).nonzero, [6], part=slice(None))
        assert dead.columns.nonzero()[:, 0].tolist() == [first, second]
        found = dead.solve(problem, 3, ALGORITHMS["bso"], options=Options(), layout=Layout((6,)))
        assert not {first, second} & set(found.support.tolist())
        assert found.objective == pytest.approx(dense_objective(problem, found.w))
