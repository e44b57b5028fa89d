"""N:M and tiles through chita.prune: every layer, every method."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

import chita
from chita import PruneResult
from chita.curvature.layer_inputs import LayerInputs
from chita.errors import ChitaError
from chita.gradual import GradualPruner
from chita.methods import METHODS
from tests.support.messages import naming
from tests.support.pruning import Pairs, cut, digits, mlpnet, numbers, seeded

METHODS_WITH_PATTERNS = sorted(name for name, method in METHODS.items() if method.constrained)
LAYER_WISE = [name for name, method in METHODS.items() if issubclass(method.curvature, LayerInputs)]


class Mixed(nn.Module):
    """Every kind of layer that a pattern looks at in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)  # 27 inputs: 4 does not divide them
        self.wide = nn.Conv2d(8, 8, 3)
        self.depthwise = nn.Conv2d(8, 8, 2, groups=8)
        self.grouped = nn.Conv2d(8, 8, 1, groups=2)
        self.projection = Conv1D(12, 8)
        self.last = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.wide(self.first(x).tanh()).tanh()
        x = self.grouped(self.depthwise(x).tanh()).tanh().mean((2, 3))
        out: Tensor = self.last(self.projection(x).tanh())
        return out


def mixed() -> nn.Module:
    return seeded(Mixed).double()


def images(samples: int = 64) -> Pairs:
    pictures = numbers(samples, 3, 7, 7)
    return cut((pictures, pictures.mean((2, 3)).argmax(1)), 8)


def groups_of(name: str, mask: Tensor, m: int) -> Tensor:
    """The mask by groups of m along the inputs, written out by hand."""
    if name == "projection.weight":
        return mask.t().reshape(-1, m)
    if mask.ndim == 4:
        return mask.permute(0, 2, 3, 1).reshape(-1, m)
    return mask.reshape(-1, m)


def prune(model: nn.Module, batches: Pairs, **arguments: Any) -> PruneResult:
    defaults = {"include": "*.weight", "samples": 20, "batch": 2, "ridge": 1e-3, "progress": False}
    return chita.prune(model, batches, **{**defaults, **arguments}, recover=False)


@pytest.mark.slow
@pytest.mark.parametrize("method", [m for m in METHODS_WITH_PATTERNS if m not in LAYER_WISE])
@pytest.mark.parametrize("block_size", [None, 50])
def test_exactly_n_of_every_m(method: str, block_size: int | None) -> None:
    model = mixed()
    before = model.first.weight.clone()  # type: ignore[union-attr,operator]
    stages = 4 if method == "chita++" else 2
    result = prune(
        model, images(), sparsity="2:4", method=method, stages=stages, block_size=block_size
    )
    assert torch.equal(model.get_parameter("first.weight"), before)
    assert set(result.masks) == {
        f"{name}.weight" for name in ("wide", "depthwise", "grouped", "projection", "last")
    }
    groups = 0
    for name, mask in result.masks.items():
        in_groups = groups_of(name, mask, 4).sum(1)
        assert in_groups.tolist() == [2] * len(in_groups)
        assert bool((model.get_parameter(name)[~mask] == 0).all())
        groups += len(in_groups)
    assert result.groups == {2: groups}
    assert result.sparsity >= 0.5
    record = result.to_dict()
    assert (record["pattern"], record["groups"]) == ("2:4", {"2": groups})
    kept = [row.kept for row in result.stages]
    assert kept == sorted(kept, reverse=True)
    # `auto` starts at the target where the mask alone costs little.
    assert kept[0] > kept[-1] == 2 * groups or (method == "auto" and kept[0] == 2 * groups)


@pytest.mark.parametrize("method", LAYER_WISE)
def test_layer_wise_methods_too(method: str) -> None:
    result = prune(mlpnet(), digits(100), sparsity="1:4", method=method)
    assert set(result.groups or ()) == {1}


@pytest.mark.parametrize("pattern", ["1:3", "3:4", "5:16", "1:32"])
def test_any_n_and_m(pattern: str) -> None:
    """Also where (1 - sparsity) p is a hair below the number that groups keep."""
    n, m = map(int, pattern.split(":"))
    model = seeded(lambda: nn.Linear(96, 7)).double()
    inputs = numbers(60, 96)
    batches = cut((inputs, inputs[:, :7].argmax(1)), 10)
    result = prune(model, batches, sparsity=pattern, method="chita-bso", include=None)
    assert result.groups == {n: 7 * 96 // m}


def test_on_the_way_groups_differ() -> None:
    result = prune(mixed(), images(), sparsity=0.3, pattern="2:4", method="chita-bso")
    assert set(result.groups or ()) == {2, 3, 4}
    assert result.sparsity == pytest.approx(0.3, abs=1e-3)


@pytest.mark.parametrize("method", ["magnitude", "magnitude-uniform", "lamp", "obd", "chita-bso"])
@pytest.mark.parametrize("block_size", [None, 10])
def test_tiles_stay_or_go_whole(method: str, block_size: int | None) -> None:
    model = mixed()
    result = prune(
        model, images(), sparsity=0.6, pattern="4x1", method=method, block_size=block_size,
        exclude=["last.*", "projection.*"],
    )  # fmt: skip
    assert set(result.groups or ()) == {0, 4}
    for mask in result.masks.values():
        tiles = mask.permute(0, 2, 3, 1).flatten(1).unflatten(0, (-1, 4)).sum(1)
        assert set(tiles.flatten().tolist()) <= {0, 4}
    assert 0.6 <= result.sparsity < 0.61


def test_chita_is_below_the_best_weights_on_the_support_of_magnitude() -> None:
    def objective(**arguments: Any) -> tuple[float, dict[str, Tensor]]:
        result = prune(
            mlpnet(), digits(400), sparsity="1:4", method="chita-bso", samples=100,
            drop_dead=False, **arguments,  # magnitude knows no dead columns
        )  # fmt: skip
        assert result.objective is not None
        return result.objective, result.masks

    still, masks = objective(iterations=0)
    magnitude = prune(mlpnet(), digits(10), sparsity="1:4", method="magnitude").masks
    assert all(torch.equal(mask, magnitude[name]) for name, mask in masks.items())
    assert objective()[0] <= still * (1 + 1e-6)
    assert objective(continuation=5)[0] < 0.98 * still


def test_gradual_pruning_ends_in_the_pattern() -> None:
    model = mixed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    pruner = GradualPruner(
        model, optimizer, [0.25, 0.5], pattern="2:4", include="*.weight", samples=20, batch=2,
        ridge=1e-3,
    )  # fmt: skip
    first = pruner.step(images())
    assert set(first.groups or ()) > {2}
    for inputs, targets in images():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    assert set(pruner.step(images()).groups or ()) == {2}
    assert "first.weight" not in pruner.masks
    pruner.finalize()
    weight = model.get_parameter("wide.weight")
    assert int((groups_of("wide.weight", weight != 0, 4).sum(1) > 2).sum()) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sparsity": "2:4", "method": "cbs"}, naming("'cbs'", re.compile("pattern"))),
        ({"sparsity": "2:4", "method": "obs"}, naming("'obs'", re.compile("pattern"))),
        ({"sparsity": "4:2"}, naming("pattern", "4:2")),
        ({"sparsity": 0.6, "pattern": "2:4"}, naming("sparsity", 0.5, 0.6, "pattern='2:4'")),
        ({"sparsity": 0.6, "pattern": "four"}, naming("pattern", "four")),
        ({"sparsity": "2:4", "allocation": "uniform"}, naming("2:4", "allocation")),
        ({"sparsity": "2:4", "strict": True}, naming("2:4", "first.weight", "strict=False")),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        prune(mixed(), images(), **arguments)
