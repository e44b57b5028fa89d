"""chita.prune and chita.recover on models and data as users have them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita.errors import ChitaError
from tests.support.gloo import on_ranks
from tests.support.messages import says
from tests.support.pruning import Pairs, Snapshot, cut, points, prune_quietly, same, snapshot, tiny


class Shifting(nn.Sequential):
    """Changes its inputs in place."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x.sub_(1))


class Shifted(nn.Sequential):
    """Computes the same outputs, and leaves its inputs as they are."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x - 1)


def shifted(outputs: Tensor, targets: Tensor) -> Tensor:
    """Expects targets that count from 1, and changes them in place."""
    return functional.cross_entropy(outputs, targets.sub_(1))


@pytest.mark.parametrize(
    "options",
    [
        {"method": "chita-bso"},
        {"method": "chita++", "ridge": "auto", "stages": 2},
        {"method": "l-obs"},
        {"method": "auto", "recover": True, "budget": "20 steps"},
    ],
    ids=lambda options: options["method"],
)
def test_a_model_that_changes_its_inputs(options: dict[str, Any]) -> None:
    given = cut(points(200), 20)
    data = copy.deepcopy(given)
    one, other = Shifting(*tiny()), Shifted(*tiny())
    result, expected = (prune_quietly(model, data, **options) for model in (one, other))
    for batch, before in zip(data, given, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(batch, before, strict=True))
    assert same(snapshot(one), snapshot(other))
    assert result.held_out_loss == expected.held_out_loss


def test_a_loss_that_changes_its_targets() -> None:
    data = [(x, t + 1) for x, t in cut(points(100), 20)]
    before = copy.deepcopy(data)
    prune_quietly(tiny(), data, loss=shifted, method="chita-bso")
    assert all(torch.equal(t, s) for (_, t), (_, s) in zip(data, before, strict=True))


def test_recover_leaves_the_samples_alone() -> None:
    data = cut(points(100), 20)
    before, model = copy.deepcopy(data), Shifting(*tiny())
    dense = copy.deepcopy(model)
    chita.recover(model, data, teacher=dense, budget="5 steps", progress=False)
    assert all(torch.equal(x, y) for (x, _), (y, _) in zip(data, before, strict=True))


def tied_by_memory() -> nn.Sequential:
    model = nn.Sequential(*tiny()[:2], nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 3))
    model.double()
    model[4].weight = nn.Parameter(model[2].weight.detach())
    return model


def tied_by_object() -> nn.Sequential:
    model = tied_by_memory()
    model[4].weight = model[2].weight
    return model


@pytest.mark.parametrize("method", ["chita-bso", "m-fac", "magnitude", "auto"])
def test_a_tie_by_memory_is_pruned_as_one_by_object(method: str) -> None:
    torch.manual_seed(0)
    one = tied_by_memory()
    other = tied_by_object()
    other.load_state_dict(one.state_dict())
    results = [prune_quietly(model, cut(points(60), 10), method=method) for model in (one, other)]
    assert same(dict(one.state_dict()), dict(other.state_dict()))
    for result, model in zip(results, (one, other), strict=True):
        assert "4.weight" not in result.masks
        for name, mask in result.masks.items():
            assert torch.equal(mask, model.get_parameter(name) != 0), name
    assert one[4].weight is not one[2].weight


def found_by(work: Callable[[nn.Module, Pairs], Any]) -> Snapshot:
    model = tiny().float()
    work(model, [(x.float(), t) for x, t in cut(points(60), 10)])
    return snapshot(model)


@pytest.mark.parametrize(
    "method", ["chita-bso", "chita-cd", "woodfisher", "m-fac", "l-obs", "auto"]
)
def test_autocast_changes_nothing(method: str) -> None:
    def work(model: nn.Module, data: Pairs) -> None:
        prune_quietly(model, data, method=method)

    plain = found_by(work)
    with torch.autocast("cpu", torch.bfloat16):
        assert same(found_by(work), plain)
        assert torch.is_autocast_enabled("cpu")


def test_autocast_changes_no_recovery() -> None:
    def work(model: nn.Module, data: Pairs) -> None:
        dense = copy.deepcopy(model)
        prune_quietly(model, data, method="magnitude")
        chita.recover(model, data, teacher=dense, budget="5 steps", progress=False)

    plain = found_by(work)
    with torch.autocast("cpu", torch.bfloat16):
        assert same(found_by(work), plain)


def sharded(rank: int, folder: str) -> list[str]:
    """The errors for FSDP2 and for tensor parallelism, in a group of one rank."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (1,))
    fully, parallel = tiny(), tiny()
    fully_shard(fully, mesh=mesh)
    parallelize_module(parallel, mesh, {"0": ColwiseParallel()})
    errors = []
    path = f"{folder}/whole.safetensors"
    chita.save(tiny(), path)
    for model in (fully, parallel):
        for work in (
            lambda: prune_quietly(model, cut(points(60), 10)),  # noqa: B023
            lambda: chita.recover(model, cut(points(60), 10), teacher=tiny()),  # noqa: B023
            lambda: chita.sensitivity(model, cut(points(60), 10)),  # noqa: B023
            lambda: chita.load(path, into=model),  # noqa: B023
            lambda: chita.save(model, "sharded.safetensors"),  # noqa: B023
            lambda: chita.export_onnx(model, points(2)[0], "sharded.onnx"),  # noqa: B023
            lambda: chita.accelerate(model, points(2)[0]),  # noqa: B023
        ):
            with pytest.raises(ChitaError) as error:
                work()
            errors.append(str(error.value))
    return errors


def test_sharded_parameters_are_refused_by_name(tmp_path: Path) -> None:
    (errors,) = on_ranks(1, sharded, str(tmp_path))
    assert isinstance(errors, list), errors
    assert len(errors) == 14
    for message in errors:
        assert says(message, "0.weight", "FSDP", "DTensor", "gather", "full_state_dict")
