"""Memory that a method needs and the machine has not."""

from __future__ import annotations

import pytest
import torch

import chita
from chita import ChitaError
from chita.methods import METHODS
from chita.pruning import storage as memory
from chita.pruning.storage import check_memory, free_bytes
from chita.solver.algorithm import Layout
from tests.support.messages import naming
from tests.support.pruning import cut, points, same, snapshot, tiny

CPU = torch.device("cpu")
MLPNET = (31360, 800, 200)


def pretend(monkeypatch: pytest.MonkeyPatch, free: float | None) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)


def test_the_message_says_what_is_needed_what_is_free_and_what_would_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, 1.5e9)
    expected = naming("woodfisher", "block 32360", "4.2 GB", "1.5 GB", "--block-size 10000")
    with pytest.raises(ChitaError, match=expected):
        check_memory(METHODS["woodfisher"], Layout(MLPNET), 100, CPU)
    check_memory(METHODS["woodfisher"], Layout(MLPNET, 10000), 100, CPU)


def test_blocks_that_are_too_large_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 0.9e9)
    with pytest.raises(
        ChitaError, match=naming("woodfisher", "block 20000", "1.98 GB", "--block-size 5000")
    ):
        check_memory(METHODS["woodfisher"], Layout(MLPNET, 20000), 100, CPU)


def test_where_no_block_is_small_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 1e6)
    with pytest.raises(
        ChitaError, match=naming("woodfisher", "4.32 GB", "1 MB", "samples", "method")
    ):
        check_memory(METHODS["woodfisher"], Layout(MLPNET), 1000, CPU)


@pytest.mark.parametrize("free", [1e12, None])
def test_nothing_is_raised_when_it_fits_or_nobody_knows(
    monkeypatch: pytest.MonkeyPatch, free: float | None
) -> None:
    pretend(monkeypatch, free)
    for method in METHODS.values():
        check_memory(method, Layout(MLPNET), 1000, CPU)


def test_prune_raises_before_the_work_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 10_000)
    model = tiny()
    before = snapshot(model)
    with pytest.raises(ChitaError, match=naming("woodfisher", "block 72")):
        chita.prune(model, cut(points(40), 10), sparsity=0.5, method="woodfisher", batch=1)
    assert same(snapshot(model), before)


def test_a_itself_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 1e8)
    with pytest.raises(ChitaError, match=naming("chita++", "block 32360", "129 MB", "100 MB")):
        check_memory(METHODS["chita++"], Layout(MLPNET), 1000, CPU)
    check_memory(METHODS["magnitude"], Layout(MLPNET), 1000, CPU)


def test_the_free_memory_is_a_likely_number() -> None:
    free = free_bytes(CPU)
    assert free is None or 1e6 < free < 1e15


def test_a_budget_stands_in_for_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 1e12)
    monkeypatch.setattr(memory, "resident_bytes", lambda device: 5e8)
    with pytest.raises(ChitaError, match=naming("woodfisher", "4.2 GB", "memory=4 GB", "3.5 GB")):
        check_memory(METHODS["woodfisher"], Layout(MLPNET), 100, CPU, budget=4 * 10**9)
    check_memory(METHODS["woodfisher"], Layout(MLPNET), 100, CPU, budget=5 * 10**9)
