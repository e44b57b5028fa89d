"""Every solver under every constraint: an allowed support, and a lower Q than magnitude's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from chita.curvature.both import InputsAndGradients
from chita.curvature.layer_inputs import LayerInputs
from chita.errors import ChitaError
from chita.methods import METHODS
from chita.solver.algorithm import Layout
from chita.solver.backsolve import backsolve
from chita.solver.constraints.constraint import ANY_SUPPORT, Constraint
from chita.solver.constraints.n_of_m import Groups
from chita.solver.constraints.tiles import Tiles
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options
from chita.solver.problem import Problem
from chita.solver.ranks import Ranks
from chita.solver.solve import ALGORITHMS, solve_problem
from tests.solver.problems import brute_force, dense_objective, random_problem
from tests.support.messages import naming

P = 96
CPU = torch.device("cpu")
STRIDED = torch.arange(P) // 24 * 8 + torch.arange(P) % 8  # groups of three, 8 apart
CONSTRAINTS: dict[str, tuple[Constraint, int, int]] = {  # with k and the unit of the blocks
    "1:3": (Groups(STRIDED, torch.ones(32).long(), torch.full((32,), 3)), 32, 24),
    "on the way to 1:3": (Groups(STRIDED, torch.ones(32).long(), torch.full((32,), 3)), 50, 24),
    "counts": (Groups.in_a_row([40, 8, 48], [5, 8, 20], [5, 8, 20], CPU), 33, 1),
    "limits": (Groups.in_a_row([40, 8, 48], [12, 4, 0], [40, 6, 8], CPU), 30, 1),
    "tiles": (Tiles(torch.arange(P) // 32 * 8 + torch.arange(P) % 8), 32, 32),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"active": 0, "step": "backtracking"},
    {"continuation": 6, "inner": "bso"},
    {"step": "lipschitz", "iterations": 9},
    {"block_sweeps": 3},
]

# Methods that use the inputs of layers take no gradients: see the tests of chita.prune.
NAMES = sorted(
    name
    for name, m in METHODS.items()
    if m.constrained and not issubclass(m.curvature, (LayerInputs, InputsAndGradients))
)


def check_allowed(constraint: Constraint, support: torch.Tensor, k: int) -> None:
    """By its own rule, counted afresh."""
    assert len(support) == k
    assert torch.equal(support, support.unique())
    if isinstance(constraint, Tiles):
        counts = torch.bincount(constraint.ids[support], minlength=24)
        assert set(counts.tolist()) <= {0, 4}
    if isinstance(constraint, Groups):
        counts = torch.bincount(constraint.ids[support], minlength=len(constraint.least))
        assert bool(((counts >= constraint.least) & (counts <= constraint.most)).all())


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("block_size", [None, 24])
@pytest.mark.parametrize("method", ["bso", "cd", "iht"])
def test_every_solver_keeps_to_the_rule(
    name: str, options: dict[str, Any], block_size: int | None, method: str
) -> None:
    constraint, k, unit = CONSTRAINTS[name]
    problem = random_problem(0, n=20, p=P, alpha=0.2, constraint=constraint)
    layout = Layout((P,), block_size, (unit,)) if unit > 1 else Layout((40, 8, 48), block_size)
    solution = solve_problem(
        problem, k, ALGORITHMS[method], options=Options.named(options), layout=layout
    )
    check_allowed(constraint, solution.support, k)
    assert set(solution.w.nonzero()[:, 0].tolist()) <= set(solution.support.tolist())
    assert solution.objective == pytest.approx(dense_objective(problem, solution.w), rel=1e-9)
    assert solution.objective < problem.start(k).objective


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("method", NAMES)
def test_every_method_keeps_to_the_rule(name: str, method: str) -> None:
    constraint, k, unit = CONSTRAINTS[name]
    problem = random_problem(1, n=20, p=P, constraint=constraint)
    layout = Layout((P,), 48, (unit,)) if unit > 1 else Layout((40, 8, 48), 48)
    known = METHODS[method]
    solution = solve_problem(problem, k, known.algorithm, options=known.options, layout=layout)
    check_allowed(constraint, solution.support, k)


@pytest.mark.parametrize("name", ["1:3", "counts", "limits"])
def test_the_active_set_grows_within_the_rule(name: str) -> None:
    """It begins with the support alone, which only a step outside can change, here or there."""
    constraint, k, _ = CONSTRAINTS[name]
    better = 0
    for seed in range(5):
        problem = random_problem(seed, n=20, p=P, alpha=0.2, constraint=constraint)
        start = problem.start(k)
        options = Options(active=1, iterations=100, tol=0.0)
        solution = solve_problem(problem, k, ALGORITHMS["cd"], options=options)
        check_allowed(constraint, solution.support, k)
        if not torch.equal(solution.support, start.support):
            better += solution.objective < backsolve(problem, start).point.objective
    assert better > 0


def test_the_rule_costs_something_and_no_more_than_its_best_support() -> None:
    """Under fixed counts no solver is below the best of all allowed supports."""
    constraint = Groups.in_a_row([8, 8], [2, 2], [2, 2], CPU)
    free = random_problem(5)
    problem = random_problem(5, constraint=constraint)
    solution = solve_problem(problem, 4, ALGORITHMS["cd"], options=Options())
    assert brute_force(free, 4) <= solution.objective <= problem.start(4).objective
    check_allowed(constraint, solution.support, 4)


def test_ranks_that_share_columns_know_any_support_only() -> None:
    class Two(Ranks):
        size = 2

    problem = random_problem(0)
    shared = HeldMatrix(problem.matrix.whole())
    shared.ranks = Two()
    Problem(shared, problem.w0, 1.0, problem.offset, constraint=ANY_SUPPORT)
    with pytest.raises(ChitaError, match=naming("2 ranks")):
        Problem(shared, problem.w0, 1.0, problem.offset, constraint=Tiles(torch.arange(16) // 2))
