"""chita.prune and weights that no sample depends on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import chita
from chita import ChitaError, PruneResult
from chita.gradual import GradualPruner
from chita.methods import METHODS
from tests.support.gloo import on_ranks
from tests.support.messages import naming
from tests.support.pruning import Pairs, cut, numbers, points, prune_quietly, seeded, tiny

SILENT = 2  # the input that is always zero
DEAD = 8  # its weights in the first layer of `tiny`
RIVALS = ("obd", "obs", "woodfisher", "woodtaylor", "m-fac", "cbs")


def silenced(samples: int = 60) -> Pairs:
    inputs, targets = points(samples)
    inputs[:, SILENT] = 0.0
    return cut((inputs, targets), 20)


def network() -> nn.Sequential:
    """`tiny`, in which the weights of the silent input are the largest."""
    model = tiny()
    with torch.no_grad():
        model[0].weight[:, SILENT] = torch.linspace(5.0, 9.0, 8)
    return model


class WithUnused(nn.Module):
    """A network with a layer that takes no part in its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.unused = network(), nn.Linear(6, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.network(x) + 0.0 * self.unused(x)
        return outputs


def pruned(model: nn.Module, **arguments: Any) -> PruneResult:
    return prune_quietly(model, silenced(), **{"sparsity": 0.6, **arguments})


def dead_kept(result: PruneResult) -> int:
    return int(result.masks["0.weight"][:, SILENT].sum())


FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "fisher": {"metric": "fisher"},
    "layer": {"metric": "layer"},
    "channel": {"metric": "channel"},
    "lamp": {"metric": "lamp"},
    "quadratic": {"first_order": False},
    "blocks": {"block_size": 10},
    "blocks, fisher": {"block_size": 10, "metric": "fisher", "first_order": False},
    "blocks in turn": {"block_size": 10, "block_sweeps": 2},
    "blocks, continuation": {"block_size": 10, "continuation": 3},
    "limits": {"allocation": "uniform"},
    "half": {"storage": "bfloat16"},
    "half, blocks": {"storage": "float16", "block_size": 10, "metric": "lamp"},
    "searched": {"ridge": "auto", "metric": "auto"},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["chita-bso", "chita-cd", "chita++"])
@pytest.mark.parametrize("form", FORMS)
def test_dead_weights_go_first(method: str, form: str) -> None:
    result = pruned(network(), method=method, **FORMS[form])
    assert dead_kept(result) == 0
    assert result.nonzeros == 28  # of 72
    # Where all weights behind a unit are pruned, those before it are dead in the next stage.
    assert result.stages[0].dead == DEAD and all(row.dead >= DEAD for row in result.stages)
    kept = pruned(network(), method=method, drop_dead=False, **FORMS[form])
    assert kept.stages[-1].dead == 0 and kept.nonzeros == 28
    if form not in ("layer", "lamp", "fisher", "blocks, fisher", "half, blocks", "searched"):
        assert dead_kept(kept) == DEAD  # plain or by channel they are the largest
    assert json.loads(json.dumps(result.to_dict()))["stages"][0]["dead"] == DEAD


def test_auto_drops_them() -> None:
    result = pruned(network(), method="auto", batch=1, ridge="auto")
    assert dead_kept(result) == 0 and all(row.dead >= DEAD for row in result.stages)
    assert result.nonzeros == 28


@pytest.mark.parametrize("method", RIVALS)
def test_rivals_drop_them_if_asked_to(method: str) -> None:
    assert not METHODS[method].drops_dead
    by_default, dropped = (pruned(network(), method=method, drop_dead=d) for d in (None, True))
    assert by_default.stages[-1].dead == 0 and dropped.stages[-1].dead == DEAD
    assert dead_kept(dropped) == 0 and dropped.nonzeros == by_default.nonzeros == 28
    if method != "obd":  # whose saliency of a dead weight is that of the ridge alone
        assert dead_kept(by_default) > 0


def test_the_chita_methods_drop_by_default() -> None:
    dropping = {name for name, method in METHODS.items() if method.drops_dead}
    assert dropping == {"chita-bso", "chita-cd", "chita++", "auto"}


@pytest.mark.parametrize("method", ["magnitude", "l-obs"])
def test_without_gradients_nothing_is_known_to_be_dead(method: str) -> None:
    with pytest.raises(ChitaError, match=naming("drop_dead=True", method, "chita++")):
        pruned(network(), method=method, drop_dead=True)
    assert pruned(network(), method=method, drop_dead=False).stages[-1].dead == 0


@pytest.mark.parametrize("given", ["yes", 1])
def test_it_is_a_flag(given: Any) -> None:
    with pytest.raises(ChitaError, match=naming("drop_dead", repr(given))):
        pruned(network(), drop_dead=given)


@pytest.mark.parametrize("metric", ["plain", "fisher", "layer", "channel", "lamp"])
@pytest.mark.parametrize("block_size", [None, 10])
def test_without_sparsity_all_stay_and_dead_weights_as_they_were(
    metric: str, block_size: int | None
) -> None:
    model = network()
    result = pruned(model, method="chita-bso", sparsity=0.0, metric=metric, block_size=block_size)
    assert result.nonzeros == 72 and result.stages[-1].dead == DEAD
    assert torch.equal(model[0].weight[:, SILENT], network()[0].weight[:, SILENT])


def test_dead_weights_fill_what_live_ones_cannot() -> None:
    model = network()
    result = pruned(model, method="chita-bso", sparsity=3 / 72)
    assert result.masks["0.weight"][:, SILENT].tolist() == [False] * 3 + [True] * 5  # the largest
    assert torch.equal(model[0].weight[3:, SILENT], network()[0].weight[3:, SILENT])
    assert result.nonzeros == 69


def test_a_layer_that_no_sample_reaches_is_not_dropped() -> None:
    for method in ("chita-bso", "chita++"):
        result = pruned(WithUnused(), method=method, include="*weight")
        assert result.stages[0].dead == DEAD
        assert not result.masks["network.0.weight"][:, SILENT].any()
        assert result.masks["unused.weight"].any()


def test_two_of_four_and_tiles() -> None:
    inputs, targets = numbers(40, 8), torch.arange(40) % 4
    inputs[:, [0, 1, 5]] = 0.0
    model = seeded(lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))).double()
    with torch.no_grad():
        model[0].weight[:, [0, 1, 5]] += 4.0
    for method in ("chita-bso", "chita++"):
        result = prune_quietly(
            model, [(inputs, targets)], sparsity="2:4", method=method, inplace=False
        )
        assert set(result.groups or ()) == {2}
        assert not result.masks["0.weight"][:, [0, 1, 5]].any()
        tiled = prune_quietly(
            model, [(inputs, targets)], sparsity=0.5, pattern="4x1", method=method, inplace=False
        )
        assert set(tiled.groups or ()) == {0, 4}
        assert not tiled.masks["0.weight"][:, [0, 1, 5]].any()


def test_weights_before_a_unit_without_outputs_are_dead() -> None:
    """They do nothing, however large they are."""
    model = tiny()
    with torch.no_grad():
        model[0].weight[3] = 5.0
        model[2].weight[:, 3] = 0.0
    result = prune_quietly(model, [points(40)], method="chita-bso", sparsity=0.5)
    assert result.stages[0].dead == 6 and not result.masks["0.weight"][3].any()


def test_nothing_is_done_to_a_network_without_dead_columns() -> None:
    weights = []
    for drop in (True, False):
        model = tiny()
        result = prune_quietly(model, [points(40)], drop_dead=drop, metric="fisher")
        assert all(row.dead == 0 for row in result.stages)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*weights)


def test_it_is_part_of_what_a_run_goes_on_with(tmp_path: Path) -> None:
    pruned(network(), checkpoints=tmp_path)
    with pytest.raises(ChitaError, match=naming("stage.safetensors", "drop_dead", None, False)):
        pruned(network(), checkpoints=tmp_path, resume=True, drop_dead=False)


def test_gradual_pruning_drops_them_at_every_step() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    pruner = GradualPruner(model, optimizer, [0.3, 0.6], ridge=0.01, batch=2)
    for _ in range(2):
        result = pruner.step(silenced())
        assert result.stages[-1].dead == DEAD
        assert not pruner.masks["0.weight"][:, SILENT].any()


RUNS: dict[str, dict[str, Any]] = {
    "plain": {"method": "chita-bso", "ridge": 0.01},
    "fisher": {"method": "chita-bso", "ridge": 0.01, "metric": "fisher"},
    "stages": {"method": "chita++", "stages": 3, "ridge": 0.01},
    "blocks": {"method": "chita-bso", "ridge": 0.01, "block_size": 10},
    "more than live ones": {"method": "chita-bso", "ridge": 0.01, "sparsity": 0.05},
}


def all_runs(rank: int) -> dict[str, Any]:
    found = {}
    for name, arguments in RUNS.items():
        model = WithUnused()
        result = chita.prune(
            model,
            silenced(),
            **{"sparsity": 0.6, "batch": 2, "progress": False, **arguments},
            recover=False,
        )
        w = torch.cat([p.detach().flatten() for p in model.parameters()])
        found[name] = w, [row.dead for row in result.stages]
    return found


def same_network(rank: int) -> dict[str, Any]:
    torch.manual_seed(0)
    return all_runs(rank)


@pytest.mark.slow
def test_a_dead_column_is_dead_on_all_ranks() -> None:
    """The layers are cut between the ranks, the unused one among them."""
    torch.set_num_threads(1)
    alone = same_network(0)
    for found in on_ranks(2, same_network):
        if isinstance(found, Exception):
            raise found
        for name, (w, dead) in found.items():
            assert dead == alone[name][1] and dead[0] == DEAD
            assert torch.equal(w == 0, alone[name][0] == 0), name
            torch.testing.assert_close(w, alone[name][0], rtol=1e-6, atol=1e-8)
