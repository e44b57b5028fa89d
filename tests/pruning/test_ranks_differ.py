"""Ranks that differ are refused by the name of what differs, or synchronised with rank 0."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import chita
from chita.errors import ChitaError
from chita.gradual import GradualPruner
from tests.support.gloo import on_ranks
from tests.support.messages import says
from tests.support.pruning import Pairs, Snapshot, same, seeded, snapshot

pytestmark = pytest.mark.slow

RUNS: dict[str, dict[str, Any]] = {
    "auto": {"method": "auto", "budget": "30 steps", "sparsity": 0.8},
    "search": {"method": "auto", "recover": False, "stages": 2, "sparsity": 0.8},
    "bso": {"method": "chita-bso", "ridge": "auto", "sparsity": 0.8},
    "l-obs": {"method": "l-obs", "sparsity": 0.5},
    "magnitude": {"method": "magnitude", "sparsity": 0.5},
    "recovered": {"method": "lamp", "recover": True, "budget": "20 steps", "sparsity": 0.5},
}
LONG = {"auto", "search"}  # the runs that take seconds
READS = {"auto", "search", "bso", "l-obs", "recovered"}  # the runs that read samples


def network() -> nn.Sequential:
    def build() -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16), nn.Linear(16, 3)
        )

    model: Any = seeded(build)
    return model  # type: ignore[no-any-return]


def samples(seed: int = 0) -> Pairs:
    x = torch.randn(240, 6, generator=torch.Generator().manual_seed(seed))
    return list(zip(x.split(24), (x[:, :3] + x[:, 3:]).argmax(1).split(24), strict=True))


def given(kind: str, rank: int) -> tuple[nn.Sequential, Pairs]:
    """The model and the data of a rank, which differ in one respect."""
    model = network()
    with torch.no_grad():
        if kind == "weight":
            model[3].weight += rank
        elif kind == "bias":
            model[0].bias += rank
        elif kind == "buffer":
            model[1].running_mean += rank
        elif kind == "count":
            model[1].num_batches_tracked += rank
    return model, samples(rank if kind == "data" else 0)


DIFFERENCES = {
    "weight": "parameter 3.weight",
    "bias": "parameter 0.bias",
    "buffer": "buffer 1.running_mean",
    "count": "buffer 1.num_batches_tracked",
    "data": "samples",
}


def pruned(run: str, kind: str, rank: int, *, sync: bool) -> Snapshot | str:
    model, data = given(kind, rank)
    try:
        chita.prune(model, data, **RUNS[run], batch=2, samples=30, progress=False, sync=sync)
    except ChitaError as error:
        return str(error)
    return snapshot(model)


def recovered(kind: str, rank: int, *, sync: bool) -> Snapshot | str:
    model, data = given(kind, rank)
    masks: dict[str, Tensor] = {"3.weight": network()[3].weight > 0}
    if kind == "mask":
        masks["3.weight"][rank, 0] ^= True
    try:
        chita.recover(model, data, teacher=network(), masks=masks, budget="10 steps",
                      progress=False, sync=sync)  # fmt: skip
    except ChitaError as error:
        return str(error)
    return snapshot(model)


def all_kinds(rank: int, runs: list[str]) -> dict[tuple[str, str, bool], Snapshot | str]:
    found: dict[tuple[str, str, bool], Snapshot | str] = {}
    for kind in (*DIFFERENCES, "none"):
        for sync in (False, True):
            for run in runs:
                if not (sync and run in LONG and kind not in ("buffer", "data")):
                    found[run, kind, sync] = pruned(run, kind, rank, sync=sync)
            found["recover", kind, sync] = recovered(kind, rank, sync=sync)
    for sync in (False, True):
        found["recover", "mask", sync] = recovered("mask", rank, sync=sync)
    return found


@pytest.mark.parametrize(("size", "runs"), [(2, list(RUNS)), (4, ["auto", "l-obs"])])
def test_each_difference_is_refused_or_synchronised(size: int, runs: list[str]) -> None:
    found = on_ranks(size, all_kinds, runs)
    for each in found:
        assert isinstance(each, dict), each
    for (run, kind, sync), first in found[0].items():
        where = f"{run}, {kind}, sync={sync}"
        others = [each[run, kind, sync] for each in found[1:]]
        accepted = sync or kind == "none" or (kind == "data" and run not in (*READS, "recover"))
        if not accepted:
            name = DIFFERENCES.get(kind, "3.weight")
            for message in (first, *others):
                assert isinstance(message, str), where
                assert says(message, name, "rank 0", "rank 1", "sync=True"), f"{where}: {message}"
            continue
        assert not isinstance(first, str), f"{where}: {first}"
        assert any(bool((tensor == 0).any()) for tensor in first.values()), where
        for other in others:
            assert not isinstance(other, str), f"{where}: {other}"
            assert same(first, other), where


def options_differ(rank: int) -> list[str]:
    errors = []
    for options in ({"sparsity": 0.5 + rank / 10}, {"sparsity": 0.5, "sync": rank == 0}):
        with pytest.raises(ChitaError) as error:
            chita.prune(network(), samples(), method="magnitude", progress=False, **options)  # type: ignore[arg-type]
        errors.append(str(error.value))
    return errors


def test_options_are_compared_also_without_gradients() -> None:
    for errors in on_ranks(2, options_differ):
        assert isinstance(errors, list), errors
        assert says(errors[0], "sparsity", 0.5, 0.6)
        assert says(errors[1], "sync", True, False)


class Fork(nn.Module):
    """Uses one of two layers, which depends on the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = (self.one if x.sum() > 0 else self.two)(x)
        return found


def forked(rank: int) -> Snapshot:
    model: Any = seeded(Fork)
    chita.recover(model, samples(), teacher=seeded(Fork, 1), budget="20 steps", progress=False)
    return snapshot(model)


def test_a_parameter_without_a_gradient_on_one_rank() -> None:
    first, second = on_ranks(2, forked)
    assert not isinstance(first, Exception), first
    assert same(first, second)


def gradually(rank: int) -> tuple[Snapshot, str]:
    """Prune in a training loop of DDP, which leaves different buffers on the ranks."""
    model = network().train()
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    pruner = GradualPruner(wrapped, optimizer, [0.5, 0.8], samples=30, batch=2)
    bare = GradualPruner(
        model, torch.optim.SGD(model.parameters(), 0.1), [0.5], samples=30, batch=2
    )
    told = ""
    for _ in range(2):
        for x, t in samples()[rank :: dist.get_world_size()]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(wrapped(x), t).backward()
            optimizer.step()
        try:
            bare.step(samples())
        except ChitaError as error:
            told = str(error)
        pruner.step(samples())
    return snapshot(model), told


def test_gradual_pruning_after_ddp_training() -> None:
    first, second = on_ranks(2, gradually)
    assert not isinstance(first, Exception), first
    assert same(first[0], second[0])
    assert says(first[1], "buffer 1.running_mean", "sync=True")
