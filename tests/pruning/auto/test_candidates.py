"""Candidates differ along axes, and an axis is declared in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import chita
from chita.pruning.auto import candidates
from chita.pruning.auto.candidates import AXES, Axis, Blocks, Candidate, CandidateSpace
from chita.pruning.config import PruneConfig
from chita.pruning.stage_problem import Formulation
from chita.solver.options import Options
from tests.support.pruning import cut, points, tiny

WHOLE, APART, COUPLED = Blocks(None, 0), Blocks(2000, 0), Blocks(2000, 1)


class ContinuationAxis(Axis):
    """A new axis: how many supports lead to the first one."""

    name, default = "continuation", 0

    def values(self, config: PruneConfig, n: int, p: int) -> Sequence[int]:
        return (config.continuation, config.continuation + 3)

    def apply(self, formulation: Formulation, value: int) -> Formulation:
        return replace(formulation, options=replace(formulation.options, continuation=value))

    def show(self, value: int) -> str:
        return f"continuation over {value} supports"


def space(n: int, p: int, **options: Any) -> CandidateSpace:
    return CandidateSpace.of(PruneConfig(**{"sparsity": 0.5, **options}, recover=False), n, p)


@pytest.mark.parametrize(
    ("n", "p", "options", "values"),
    [
        (100, 10**5 - 1, {}, (("plain", "fisher", "lamp"), (True, False), (WHOLE,))),
        (100, 10**5, {"metric": "lamp"}, (("lamp",), (True, False), (WHOLE, APART, COUPLED))),
        (100, 10**5 + 1, {"metric": "layer"}, (("layer",), (True, False), (APART, COUPLED))),
        (100, 10**5, {"metric": "lamp", "pattern": "4x1"}, (("lamp",), (True, False), (WHOLE,))),
        (99, 10**5, {"first_order": True, "metric": "plain", "pattern": "4x1"},
         (("plain",), (True,), (APART, COUPLED))),
        (100, 10**6, {"block_size": 50, "block_sweeps": 2, "metric": "plain", "first_order": False},
         (("plain",), (False,), (Blocks(50, 2),))),
        (100, 10**6, {"method": "chita++"}, (("plain",), (True,), (WHOLE,))),
        (100, 10**6, {"method": "chita-bso", "metric": "auto", "first_order": False},
         (("plain", "fisher", "lamp"), (False,), (WHOLE,))),
    ],
)  # fmt: skip
def test_the_options_leave_candidates_open(
    n: int, p: int, options: dict[str, Any], values: tuple[tuple[Any, ...], ...]
) -> None:
    assert space(n, p, **options).values == (*values, (1.0,))


def test_auto_tries_blocks_where_there_are_many_weights() -> None:
    """In a pattern they are solved one by one: only where all columns at once are too many."""
    few, many, most = 10_000, 200_000, 2_000_000
    free, patterned = (
        PruneConfig(0.5, recover=False),
        PruneConfig(0.5, pattern="2:4", recover=False),
    )
    sizes = {
        (name, p): [size for size, _ in CandidateSpace.of(config, 1000, p).values[2]]
        for name, config in (("free", free), ("2:4", patterned))
        for p in (few, many, most)
    }
    assert sizes["free", few] == sizes["2:4", few] == sizes["2:4", many] == [None]
    assert sizes["free", many] == [None, 2000, 2000]
    assert sizes["free", most] == sizes["2:4", most] == [2000, 2000]


def test_neighbours_differ_on_one_axis() -> None:
    found = space(100, 10**5)
    neighbours = found.neighbours(found.first)
    assert len(neighbours) == 2 + 1 + 1 and len(found.all()) == 3 * 2 * 3
    for other in neighbours:
        assert sum(a != b for a, b in zip(found.first.values, other.values, strict=True)) == 1


@pytest.mark.parametrize(
    ("blocks", "beside"), [(WHOLE, [APART]), (APART, [WHOLE, COUPLED]), (COUPLED, [WHOLE, APART])]
)
def test_coupled_blocks_are_compared_with_independent_ones_first(
    blocks: Blocks, beside: list[Blocks]
) -> None:
    found = space(100, 10**5)
    along = found.along(found.first.moved(2, blocks), 2)
    assert [candidate.values[2] for candidate in along] == beside


def test_ranks_try_candidates_of_one_block_size_only() -> None:
    base = Formulation(Options())
    assert space(100, 10**5).with_one_block_size(base).values[2] == (WHOLE,)
    assert space(99, 10**5).with_one_block_size(base).values[2] == (APART, COUPLED)
    assert space(99, 10**5).with_one_block_size(base).values[:2] == space(99, 10**5).values[:2]


def test_a_candidate_is_read_as_it_was_stored() -> None:
    for candidate in space(100, 10**5).all():
        assert Candidate.from_dict({**candidate.to_dict(), "ridge": 0.1}) == candidate


def test_a_new_axis_needs_its_declaration_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The search tries its values, rows and files store them, and a run can be resumed."""
    monkeypatch.setattr(candidates, "AXES", (*AXES, ContinuationAxis()))
    batches = cut(points(60), 10)
    options: dict[str, Any] = {"sparsity": 0.8, "stages": 20, "progress": False}
    result = chita.prune(tiny(), batches, checkpoints=tmp_path, **{"recover": False, **options})
    record = result.to_dict()["stages"]
    tried = {trial["continuation"] for row in record for trial in row["candidates"]}
    assert tried == {0, 3}
    for row, stored in zip(result.stages, record, strict=True):
        assert row.candidate.to_dict().items() <= stored.items()
        assert f"continuation over {stored['continuation']} supports" in row.why
    again = chita.prune(
        tiny(), batches, checkpoints=tmp_path, resume=True, **{"recover": False, **options}
    )
    assert again.stages == result.stages
    for mask, same in zip(result.masks.values(), again.masks.values(), strict=True):
        assert torch.equal(mask, same)
