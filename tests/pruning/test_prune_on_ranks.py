"""chita.prune on gloo ranks gives what it gives in one process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import chita
from chita.curvature.fisher import gradient_matrix
from chita.errors import ChitaError
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.algorithm import Layout
from chita.solver.division import Division
from chita.solver.matrix.shared import SharedTarget
from chita.solver.ranks import ALONE, joined_ranks
from tests.support.gloo import on_ranks
from tests.support.messages import naming

pytestmark = pytest.mark.slow

RUNS: dict[str, dict[str, Any]] = {
    "bso": {"method": "chita-bso", "ridge": 1e-2},
    "cd": {"method": "chita-cd", "ridge": 1e-2},
    "stages": {"method": "chita++", "stages": 3, "ridge": "auto"},
    "auto": {"method": "auto", "stages": 2},
    "floor": {"method": "auto", "stages": 3, "max_loss_increase": 0.02, "min_accuracy": 10.0},
    "blocks": {"method": "chita-bso", "ridge": 1e-2, "block_size": 200},
    "magnitude": {"method": "magnitude-uniform"},
    "lamp": {"method": "lamp"},
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(72, 20),
        nn.Tanh(),
        nn.Linear(20, 5),
    ).double()


def images() -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(300, 1, 8, 8, generator=draw, dtype=torch.float64)
    return list(zip(x.split(50), (x.flatten(1)[:, :5].argmax(1)).split(50), strict=True))


def pruned(name: str, **more: Any) -> tuple[Tensor, list[float], float]:
    model = network()
    arguments = {"samples": 61, "batch": 2, "sparsity": 0.8, "progress": False, **RUNS[name]}
    result = chita.prune(model, images(), **arguments, **{"recover": False, **more})
    w = torch.cat([p.detach().flatten() for p in model.parameters()])
    return w, [row.objective or 0.0 for row in result.stages], result.sparsity


def runs_on(size: int) -> list[str]:
    """What is costly to choose is run on few ranks."""
    return [name for name in RUNS if size == 2 or name not in ("auto", "floor")]


def all_runs(rank: int, names: list[str], folder: str) -> Any:
    kept = ("stages", "floor") if "floor" in names else ()
    found = {name: pruned(name) for name in names if name not in kept}
    for name in kept:
        keywords: dict[str, Any] = {"checkpoints": f"{folder}/{name}"}
        found[name] = pruned(name, **keywords)
        assert torch.equal(pruned(name, resume=True, **keywords)[0], found[name][0])
    with pytest.raises(ChitaError, match=naming("m-fac", "ranks")):
        chita.prune(network(), images(), sparsity=0.5, method="m-fac", samples=10, batch=1)
    with pytest.raises(ChitaError, match=naming("ranks", re.compile("limits|allocation"))):
        chita.prune(
            network(), images(), sparsity=0.5, allocation="erk", samples=10, batch=1, recover=False
        )
    with pytest.raises(ChitaError, match=naming("n", "rank 0", "rank 1", "sync=True")):
        chita.prune(network(), images()[rank:], sparsity=0.5, batch=1, ridge=0.1, recover=False)
    with pytest.raises(ChitaError, match=naming("ranks", "sparsity", 0.5, re.compile(r"0\.[678]"))):
        chita.prune(
            network(), images(), sparsity=0.5 + rank / 10, samples=10, batch=1, recover=False
        )
    with pytest.raises(ChitaError, match=naming("0.weight", "rank 0", "rank 1", "sync=True")):
        model = network()
        with torch.no_grad():
            model[0].weight += rank
        chita.prune(model, images(), sparsity=0.5, samples=10, batch=1, recover=False)
    return found


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_prune_as_one_process_does(size: int, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    names = runs_on(size)
    alone = {name: pruned(name) for name in names}
    for found in on_ranks(size, all_runs, names, str(tmp_path)):
        if isinstance(found, Exception):
            raise found
        for name, (w, objectives, sparsity) in found.items():
            w0, expected, target = alone[name]
            assert sparsity == target
            assert torch.equal(w == 0, w0 == 0), name
            torch.testing.assert_close(w, w0, rtol=1e-6, atol=1e-8)
            assert objectives == pytest.approx(expected, rel=1e-6), name


ROWS = 200  # 100 a rank, sent by threes and the last one alone


def peak_of_rows(rank: int) -> tuple[Tensor, int]:
    model = network()
    weights, rows, batch = Weights(model), ROWS, 1
    with joined_ranks() as ranks:
        division = Division(ranks, Layout((weights.size,)))
        counts = division.rows(rows)
        stream = SampleStream(images())
        stream.skip(sum(counts[:rank]) * batch)
        made: list[SharedTarget] = []

        def store(demand: Any) -> SharedTarget:
            made.append(SharedTarget(demand, ranks, division.bounds, counts))
            return made[0]

        found = gradient_matrix(model, weights, stream, rows=counts[rank], batch=batch, store=store)
        return found.matrix.whole(), made[0].most_rows


def test_every_rank_keeps_its_columns() -> None:
    model = network()
    weights = Weights(model)
    whole = gradient_matrix(model, weights, SampleStream(images()), rows=ROWS, batch=1)
    found = on_ranks(2, peak_of_rows)
    torch.testing.assert_close(torch.cat([part for part, _ in found]), whole.matrix.whole())
    for part, most_rows in found:
        assert len(part) <= -(-weights.size // 2)
        assert most_rows == 3
        buffers = 3 * most_rows * weights.size  # the rows begun, those that wait, those that come
        assert buffers <= 0.1 * part.numel()


def test_division_in_one_process_is_all() -> None:
    layout = Layout((10, 20), 7)
    division = Division(ALONE, layout)
    assert division.bounds == [0, 30]
    assert division.layout == layout
    assert division.rows(9) == [9]
