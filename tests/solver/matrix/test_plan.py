"""The plan: held if that fits, else what is quickest, else an error with the least that does."""

from __future__ import annotations

import logging
import re

import pytest
import torch

from chita.errors import ChitaError
from chita.solver.matrix import plan
from chita.solver.matrix.half_precision import HalfTarget
from chita.solver.matrix.in_memory import Demand, HeldTarget, Target
from chita.solver.matrix.on_disk import FileTarget
from chita.solver.matrix.plan import Disk, Planner, Work
from chita.solver.matrix.recomputed import WindowTarget
from tests.support.messages import naming, says

GB = 10**9
USED = GB // 2

# A of 2 GB, whose rows are 8 MB, cost a second each and can be computed 10 at a time.
DEMAND = Demand(
    rows=250,
    columns=2_000_000,
    dtype=torch.float32,
    device=torch.device("cpu"),
    chunk=10,
    row_bytes=10**6,
    row_seconds=1.0,
    sample_bytes=1000,
)
WHOLE = Work(kept=200_000, active=400_000)
BLOCKS = Work(kept=200_000, batch=10_000)
FAST, SLOW = Disk(100 * GB, 1e9, 1e9), Disk(100 * GB, 1e5, 1e5)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "resident_bytes", lambda device: USED)
    have(monkeypatch, FAST)


def have(monkeypatch: pytest.MonkeyPatch, disk: Disk) -> None:
    monkeypatch.setattr(plan, "probe_disk", lambda: disk)


def chosen(budget: float, work: Work, dtype: torch.dtype | None = None) -> Target:
    return Planner(int(budget), work, dtype)(DEMAND)


@pytest.mark.parametrize("work", [WHOLE, BLOCKS])
def test_it_is_held_if_there_is_room(work: Work) -> None:
    assert type(chosen(6 * GB, work)) is HeldTarget
    assert type(chosen(2.4 * GB, work)) is not HeldTarget


def test_the_active_set_counts() -> None:
    assert type(chosen(3 * GB, Work(kept=200_000))) is HeldTarget
    assert type(chosen(3 * GB, WHOLE)) is FileTarget


def test_half_precision_is_held_where_full_is_not() -> None:
    assert type(chosen(2.4 * GB, BLOCKS)) is FileTarget
    assert type(chosen(2.4 * GB, BLOCKS, torch.bfloat16)) is HalfTarget


def test_what_takes_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(chosen(1.5 * GB, BLOCKS)) is FileTarget
    have(monkeypatch, SLOW)
    assert type(chosen(1.5 * GB, BLOCKS)) is WindowTarget
    # Without blocks the columns are read again and again.
    assert type(chosen(1.5 * GB, WHOLE)) is FileTarget


def test_a_full_disk_leaves_recomputation_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, Disk(GB, 1e9, 1e9))
    assert type(chosen(1.5 * GB, BLOCKS)) is WindowTarget
    with pytest.raises(ChitaError, match=naming("A", "2 GB", "1 GB")):
        chosen(1.5 * GB, WHOLE)


@pytest.mark.parametrize("work", [WHOLE, BLOCKS])
@pytest.mark.parametrize("disk", [FAST, Disk(GB, 1e9, 1e9)])
def test_the_least_that_would_do_does(
    monkeypatch: pytest.MonkeyPatch, work: Work, disk: Disk
) -> None:
    have(monkeypatch, disk)
    with pytest.raises(ChitaError, match=naming("memory=600 MB")) as raised:
        chosen(0.6 * GB, work)
    figure = re.search(r"least\D*(\d+(?:\.\d+)?) ([MG]B)", str(raised.value))
    assert figure is not None
    least = float(figure[1]) * {"MB": 1e6, "GB": 1e9}[figure[2]]
    with pytest.raises(ChitaError):
        chosen(0.99 * least, work)
    assert chosen(1.01 * least, work).most_rows >= 1


def test_the_buffers_are_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    for budget in (0.9 * GB, 1.5 * GB):
        target = chosen(budget, WHOLE)
        assert isinstance(target, FileTarget)
        assert 1 <= target.most_rows * DEMAND.vector_bytes <= budget - USED
    have(monkeypatch, SLOW)
    window = chosen(0.9 * GB, BLOCKS)
    assert isinstance(window, WindowTarget)
    assert window.stored.nbytes <= 0.9 * GB - USED


def test_the_choice_is_logged_with_its_estimate(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="chita"):
        chosen(1.5 * GB, WHOLE)
    (message,) = caplog.messages
    # 250 s for the rows, 2 to write, 12 to read six times
    assert says(message, "A", "250 x 2000000", "2 GB", "file", "264 s", "memory=1.5 GB")


def test_it_decides_once_for_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = Planner(10**9, Work(kept=10))
    first = planner(DEMAND)
    # What the first stage leaves in memory was counted then.
    monkeypatch.setattr(plan, "resident_bytes", lambda device: 10**9)
    second = planner(DEMAND)
    assert type(first) is type(second)
    assert first is not second
