import os
from dataclasses import replace
from typing import Any

import pytest
import torch

from chita.deploy import timing as clock
from chita.errors import ChitaError
from chita.paper.scale import measure as scale_measure
from chita.paper.scale.case import Case
from chita.paper.scale.measure import RUNS, best_time, measure
from chita.solver.ranks import ALONE
from tests.support.messages import naming

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
OVERHEAD = 60 << 20  # bytes that libraries take for themselves


def test_the_peak_is_that_of_the_work_and_ranks_share_it() -> None:
    ballast = torch.ones(1 << 30, dtype=torch.uint8)  # of this process, which must not count
    case = Case("ranks", None, 800_000, 50)
    alone, shared = measure(case, CPU), measure(replace(case, ranks=2), CPU)
    del ballast
    assert case.matrix_bytes < alone["peak_bytes"] < 1.5 * case.matrix_bytes + OVERHEAD
    assert case.matrix_bytes / 2 < shared["peak_bytes"] < 0.75 * case.matrix_bytes + OVERHEAD
    assert alone["gradients"] is None
    assert alone["blocks"] is None
    assert shared["threads"] == 1


def test_a_network_in_blocks() -> None:
    figures = measure(Case("p", "mlpnet", 32_360, 20, block_size=2000), CPU)
    seconds = ("gradients", "solve", "blocks", "pass", "gram", "factorisation")
    assert all(figures[part] > 0 for part in seconds)


def test_the_best_of_a_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    ticks = iter([0.0, 9.0, 10.0, 12.0, 20.0, 24.0])  # runs of 9, 2 and 4 seconds
    monkeypatch.setattr(clock, "perf_counter", lambda: next(ticks))
    result, seconds = best_time(lambda: calls.append(0) or len(calls), ALONE, CPU)
    assert (result, seconds) == (RUNS, 2.0)


def test_what_takes_long_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 30.0])
    monkeypatch.setattr(clock, "perf_counter", lambda: next(ticks))
    assert best_time(lambda: "done", ALONE, CPU) == ("done", 30.0)


def test_too_little_memory_is_told_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_measure, "free_bytes", lambda device: 5_000_000)
    with pytest.raises(ChitaError, match=naming("6 MB", "5 MB")):
        measure(Case("p", None, 10_000, 100), CPU)


def killed(*_: Any) -> None:
    os._exit(9)


def test_a_killed_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_measure, "_in_own_process", killed)
    with pytest.raises(ChitaError, match=naming("process", "memory")):
        measure(Case("p", None, 1000, 10), CPU)
