"""memory= and storage= of chita.prune: the same outcome wherever A is, and the promise kept."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from chita import ChitaError
from chita.methods import get_method
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.pruning.stage_problem import Formulation
from chita.pruning.storage import SOLVES, plan_work
from chita.solver.algorithm import Layout
from chita.solver.matrix.half_precision import HalfTarget
from chita.solver.matrix.in_memory import Demand, HeldTarget, Store, Target
from chita.solver.matrix.on_disk import FileTarget
from chita.solver.matrix.plan import BATCHES, Planner, Work
from chita.solver.matrix.recomputed import WindowTarget
from chita.solver.options import Options
from tests.support.messages import naming, says
from tests.support.pruning import cut, digits, mlpnet, points, prune_quietly, seeded, tiny
from tests.support.wide import STATUS

MB = 10**6


def put(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """Let every plan be `store`."""
    monkeypatch.setattr(Planner, "__call__", lambda self, demand: store(demand))


def file_store(demand: Demand) -> Target:
    return FileTarget(demand, dtype=demand.dtype, slab=5, room=0)


def window_store(demand: Demand) -> Target:
    return WindowTarget(demand, demand.columns // 3)


def outcome(model: nn.Module, batches: Any, **keywords: Any) -> torch.Tensor:
    return Weights(prune_quietly(model, batches, memory="1GB", **keywords).model).vector()


@pytest.mark.parametrize("store", [file_store, window_store])
@pytest.mark.parametrize(
    "keywords",
    [
        {"method": "chita-bso"},
        {"method": "chita-cd"},
        {"method": "chita-bso", "block_size": 10},
        {"method": "chita-cd", "block_size": 10},
        {"method": "chita++", "block_size": 7},
        {"method": "chita-bso", "block_size": 10, "block_sweeps": 2},
        {"method": "chita++", "ridge": "auto"},
        {"method": "chita-bso", "continuation": 3},
    ],
)
def test_the_outcome_does_not_depend_on_the_plan(
    monkeypatch: pytest.MonkeyPatch, store: Store, keywords: dict[str, Any]
) -> None:
    batches = cut(points(60), 10)
    put(monkeypatch, HeldTarget)
    held = outcome(tiny(), batches, **keywords)
    put(monkeypatch, store)
    torch.testing.assert_close(outcome(tiny(), batches, **keywords), held, rtol=1e-8, atol=1e-10)


def test_on_mlpnet_too(monkeypatch: pytest.MonkeyPatch) -> None:
    keywords = {"method": "chita-bso", "samples": 60, "batch": 4, "sparsity": 0.9}
    put(monkeypatch, HeldTarget)
    held = outcome(mlpnet(), digits(240), **keywords)
    put(monkeypatch, file_store)
    spilled = outcome(mlpnet(), digits(240), **keywords)
    both = (held != 0) & (spilled != 0)
    assert int(((held != 0) != (spilled != 0)).sum()) <= 2  # ties to rounding
    torch.testing.assert_close(spilled[both], held[both], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("storage", ["bfloat16", "float16"])
def test_half_precision_prunes_as_well(storage: str) -> None:
    keywords: dict[str, Any] = {"method": "chita-bso", "samples": 60, "batch": 4, "sparsity": 0.9}
    full = prune_quietly(mlpnet(), digits(240), **keywords)
    half = prune_quietly(mlpnet(), digits(240), **keywords, storage=storage)
    objectives = [result.stages[-1].objective for result in (half, full)]
    assert objectives[0] == pytest.approx(objectives[1], rel=0.02)
    left, right = (Weights(result.model).vector() != 0 for result in (half, full))
    assert int((left != right).sum()) < 0.01 * int(left.sum())


def test_half_of_a_float64_model_is_read_as_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[HalfTarget] = []
    plain = HalfTarget.__init__

    def noted(self: HalfTarget, demand: Demand, dtype: torch.dtype) -> None:
        plain(self, demand, dtype)
        made.append(self)

    monkeypatch.setattr(HalfTarget, "__init__", noted)
    prune_quietly(tiny(), cut(points(60), 10), method="chita-bso", storage="float16")
    (target,) = made
    assert target.matrix(lambda other: None).dtype == torch.float64


def test_rivals_need_a_in_memory() -> None:
    batches = cut(points(60), 10)
    with pytest.raises(ChitaError, match=naming("obd", "8.64 KB", "memory=1 MB", "0 B")):
        prune_quietly(tiny(), batches, method="obd", memory="1MB")
    prune_quietly(tiny(), batches, method="obd", memory="100GB")
    with pytest.raises(ChitaError, match=naming("storage", "float32", "obd", "float16")):
        prune_quietly(tiny(), batches, method="obd", storage="float16")


def test_too_little_is_an_error_and_leaves_the_model_alone() -> None:
    model = tiny()
    before = Weights(model).vector()
    with pytest.raises(
        ChitaError, match=naming("memory=1 MB", re.compile(r"least\D*[\d.]+ [MG]B"))
    ):
        prune_quietly(model, cut(points(60), 10), memory="1MB")
    assert torch.equal(Weights(model).vector(), before)


def test_samples_are_the_same_in_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that come in another order each time they are read are kept for the later passes."""
    inputs, targets = points(40)

    class Shuffled:
        def __iter__(self) -> Any:
            order = torch.randperm(len(inputs))
            return iter(cut((inputs[order], targets[order]), 10))

    read: list[int] = []
    plain = SampleStream._next

    def noted(self: SampleStream) -> Any:
        read.append(1)
        return plain(self)

    monkeypatch.setattr(SampleStream, "_next", noted)
    put(monkeypatch, window_store)
    seeded(lambda: outcome(tiny(), Shuffled(), method="chita-bso", samples=20, block_size=10))
    assert len(read) == 1 + 4  # a mini-batch to find what gradients reach, and then each batch once


CPU = torch.device("cpu")
N = 50


def work_of(blocks: Any, kept: tuple[int, int], layers: tuple[int, ...] = (3000, 2000)) -> Work:
    formulations = [
        Formulation(Options(block_sweeps=sweeps), block_size=size) for size, sweeps in blocks
    ]
    layout = Layout(layers, formulations[0].block_size)
    return plan_work(get_method("auto"), layout, formulations, n=N, kept=kept, device=CPU)


def test_a_plan_is_for_all_forms_that_may_be_tried() -> None:
    whole, apart = work_of([(None, 0)], (50, 1000)), work_of([(100, 0)], (50, 1000))
    assert whole == Work(kept=1000, active=2000)
    assert apart.batch is not None and apart.batch >= 100 and apart.solves == 1
    assert work_of([(100, 0), (100, 3)], (50, 1000)) == replace(apart, solves=4)
    both = work_of([(None, 0), (100, 0), (100, 1)], (50, 1000))
    assert both == replace(whole, beside=BATCHES * apart.batch * N * 4, solves=2)


@pytest.mark.parametrize(
    ("kept", "active"),
    [((1000, 1000), 2000), ((2500, 4000), 0), ((10, 4000), 4999), ((10, 5000), 4999)],
)
def test_a_plan_is_for_all_supports_that_may_come_between(
    kept: tuple[int, int], active: int
) -> None:
    """The active set is twice the support, and none where that is all."""
    assert work_of([(None, 0)], kept) == Work(kept=kept[1], active=active)


@pytest.mark.parametrize(
    ("keywords", "kept"),
    [({}, 57), ({"start": 0.5}, 36), ({"max_loss_increase": 0.1}, 72), ({"start": 0.9}, 14)],
)
def test_a_search_for_a_floor_may_end_at_any_support(
    monkeypatch: pytest.MonkeyPatch, keywords: dict[str, Any], kept: int
) -> None:
    planned: list[Work] = []

    def noted(self: Planner, demand: Demand) -> Target:
        planned.append(self.work)
        return HeldTarget(demand)

    monkeypatch.setattr(Planner, "__call__", noted)
    arguments = {"method": "auto", "sparsity": 0.8, "stages": 2, "memory": "1GB", **keywords}
    prune_quietly(tiny(), cut(points(60), 10), **arguments)
    assert {work.kept for work in planned} == {kept}
    assert {work.solves for work in planned} == {SOLVES}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block_size", "room", "slow_disk", "plan"),
    [
        (None, 350, False, "file"),
        (5000, 450, False, "file"),
        (5000, 600, True, "comput"),
    ],
)
@pytest.mark.skipif(not STATUS.exists(), reason="the system does not report peaks")
def test_the_promise_is_kept(block_size: int | None, room: int, slow_disk: bool, plan: str) -> None:
    record = run_apart({"block_size": block_size, "room": room * MB, "slow_disk": slow_disk})
    (said,) = (message for message in record["told"] if says(message, "A", "memory="))
    assert says(said, re.compile(plan))
    assert record["peak"] < record["budget"] + 50 * MB


def run_apart(arguments: dict[str, Any]) -> dict[str, Any]:
    """What tests/support/wide.py says."""
    script = Path(__file__).parents[1] / "support" / "wide.py"
    paths = os.pathsep.join(path for path in sys.path if path)
    child = subprocess.run(
        [sys.executable, str(script), json.dumps(arguments)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        check=True,
    )
    record: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return record
