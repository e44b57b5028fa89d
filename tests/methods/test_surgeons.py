"""The surgeons inside chita.prune: each by its name alone, in stages, in blocks, with any ridge."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import chita
from chita.methods import METHODS
from chita.solver.solve import solve_problem
from tests.solver.problems import random_problem
from tests.support.pruning import cut, points, snapshot, tiny

NAMES = ["obd", "obs", "woodfisher", "woodtaylor", "m-fac"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "arguments",
    [
        {"ridge": 1e-3},
        {"ridge": "auto"},
        {"ridge": 1e-3, "stages": 3},
        {"ridge": "auto", "stages": 3, "block_size": 20},
        {"ridge": 1e-3, "block_size": 30, "first_order": False},
    ],
    ids=str,
)
def test_prune_by_name(name: str, arguments: dict[str, Any]) -> None:
    model = tiny()
    before = snapshot(model)
    result = chita.prune(
        model,
        cut(points(120), 10),
        sparsity=0.75,
        method=name,
        samples=40,
        batch=2,
        progress=False,
        **{"recover": False, **arguments},
    )
    assert len(result.stages) == arguments.get("stages", 1)
    masks = torch.cat([mask.flatten() for mask in result.masks.values()])
    assert int(masks.sum()) == 18
    moved = False
    for key, mask in result.masks.items():
        weight = model.get_parameter(key).detach()
        assert bool((weight[~mask] == 0).all())
        moved = moved or not torch.equal(weight[mask], before[key][mask])
    assert moved == (name != "obd")  # OBD alone has no update


def test_woodfisher_and_m_fac_are_two_ways_to_one_point() -> None:
    for seed in range(5):
        problem = random_problem(seed, n=12, p=40)
        one, other = (
            solve_problem(problem, 10, METHODS[name].algorithm, options=METHODS[name].options)
            for name in ("woodfisher", "m-fac")
        )
        torch.testing.assert_close(one.w, other.w, rtol=1e-8, atol=1e-8)


def test_woodtaylor_is_woodfisher_where_there_is_no_first_order_term() -> None:
    def solved(name: str, alpha: float) -> torch.Tensor:
        problem, method = random_problem(4, n=12, p=40, alpha=alpha), METHODS[name]
        weights = solve_problem(problem, 10, method.algorithm, options=method.options).w
        assert isinstance(weights, torch.Tensor)
        return weights

    assert torch.equal(solved("woodtaylor", 0.0), solved("woodfisher", 0.0))
    assert torch.equal(solved("woodfisher", 1.0), solved("woodfisher", 0.0))
    assert not torch.allclose(solved("woodtaylor", 1.0), solved("woodfisher", 1.0))
