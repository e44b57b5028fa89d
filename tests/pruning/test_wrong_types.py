"""Arguments of wrong types or absurd sizes: one ChitaError that names them, and no hang."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita import ChitaError, PruneConfig
from chita.solver.matrix.memory import parse_bytes
from tests.support.messages import naming
from tests.support.pruning import cut, points, tiny

BATCHES = cut(points(24), 6)
PLAIN = {"sparsity": 0.5, "method": "chita-bso", "batch": 2, "progress": False}


def complex_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets).to(torch.complex64)


class Expanded(nn.Module):
    """A linear layer whose rows are one row in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3).double()
        row = torch.randn(1, 6, dtype=torch.float64)
        self.layer.weight = nn.Parameter(row.expand(3, 6))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y


class Sided(nn.Module):
    """A network with a layer that has no outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.empty = nn.Linear(6, 3), nn.Linear(6, 0)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return torch.cat([y, self.empty(x)], dim=-1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stages", 10**9),
        ("continuation", 10**9),
        ("ridge", 1e308),
        ("ridge", 10**400),
        ("max_loss_increase", 10**400),
        ("memory", "9" * 400),
        ("loss", np.ones(2)),
        ("samples", 1.5),
    ],
)
def test_values_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(ChitaError, match=naming(name)):
        PruneConfig(sparsity=0.5, **{name: value})


def test_the_largest_values_are_accepted() -> None:
    assert len(PruneConfig(sparsity=0.5, stages=10_000).plan()) == 10_000
    assert PruneConfig(sparsity=0.5, ridge=1e100).ridge == 1e100
    assert parse_bytes("memory", "9000TB") == 9 * 10**15


@pytest.mark.parametrize("method", ["auto", "chita-bso", "magnitude"])
@pytest.mark.parametrize("recover", [False, True])
def test_expanded_weights(method: str, recover: bool) -> None:
    keywords = {**PLAIN, "method": method, "recover": recover}
    with pytest.raises(ChitaError, match=naming("layer.weight", "expanded")):
        chita.prune(Expanded(), BATCHES, **keywords)


@pytest.mark.parametrize("method", ["auto", "chita-bso", "obd", "l-obs"])
def test_a_network_of_empty_layers(method: str) -> None:
    model = nn.Sequential(nn.Linear(6, 0), nn.Linear(0, 3)).double()
    with pytest.raises(ChitaError, match=naming("include", "exclude")):
        chita.prune(model, BATCHES, **{**PLAIN, "method": method})


@pytest.mark.parametrize("method", ["auto", "chita-bso", "obd", "l-obs", "magnitude"])
def test_a_layer_without_outputs_is_left_out(method: str) -> None:
    result = chita.prune(Sided(), BATCHES, **{**PLAIN, "method": method, "recover": False})
    assert list(result.masks) == ["layer.weight"]
    assert result.masks["layer.weight"].sum() == 9


@pytest.mark.parametrize("method", ["auto", "chita-bso"])
def test_a_complex_loss(method: str) -> None:
    with pytest.raises(ChitaError, match=naming("loss", "torch.complex64")):
        chita.prune(tiny(), BATCHES, **{**PLAIN, "method": method}, loss=complex_loss)
    with pytest.raises(ChitaError, match=naming("loss", "torch.complex64")):
        chita.sensitivity(tiny(), BATCHES, loss=complex_loss)


@pytest.mark.parametrize("path", ["a\0b", "", "a" * 300])
def test_a_folder_that_cannot_be(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChitaError, match="checkpoints"):
        chita.prune(tiny(), BATCHES, **PLAIN, checkpoints=path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("include", 5),
        ("include", [5]),
        ("exclude", 3.0),
        ("loss", {}),
        ("loss", np.ones(2)),
        ("sparsities", [10**400]),
        ("samples", 1.5),
    ],
)
def test_sensitivity(name: str, value: Any) -> None:
    with pytest.raises(ChitaError, match=naming(name)):
        chita.sensitivity(tiny(), BATCHES, **{name: value})


def test_sensitivity_to_expanded_and_empty_weights() -> None:
    with pytest.raises(ChitaError, match=naming("layer.weight", "expanded")):
        chita.sensitivity(Expanded(), BATCHES)
    assert [layer.name for layer in chita.sensitivity(Sided(), BATCHES).layers] == ["layer.weight"]


@pytest.mark.parametrize("name", [[], {}, np.ones(2), 5])
def test_names_of_networks_and_data(name: Any) -> None:
    with pytest.raises(ChitaError, match=naming("mlpnet")):
        chita.zoo.get(name)
    for find in (chita.data.load, chita.data.get):
        with pytest.raises(ChitaError, match=naming("mnist")):
            find(name)


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (AssertionError("Input height (32) doesn't match model (224)."), ["height (32)"]),
        (AssertionError(), ["AssertionError"]),
        (ZeroDivisionError("division by zero"), ["ZeroDivisionError"]),
        (KeyError("pixel_values"), ["KeyError", "pixel_values"]),
    ],
)
def test_a_model_that_fails_on_its_inputs(error: Exception, parts: list[str]) -> None:
    """The vision transformers of timm, for instance, assert the size of their images."""

    class Failing(nn.Sequential):
        def forward(self, x: Any) -> Any:
            raise error

    with pytest.raises(ChitaError, match=naming("model", "inputs", 6, *parts)):
        chita.prune(Failing(nn.Linear(6, 3)), cut(points(60), 10), sparsity=0.5, progress=False)


@pytest.mark.parametrize("value", ["no", 0, 1, None, [], np.True_])
def test_switches_are_true_or_false(value: Any, tmp_path: Path) -> None:
    """A text such as "no" is true in Python: a copy that was asked for would not be made."""
    model = tiny()
    before = model[0].weight.clone()
    for name in ("inplace", "progress", "resume", "strict", "sync"):
        given: dict[str, Any] = {**PLAIN, "checkpoints": tmp_path / "run", name: value}
        with pytest.raises(ChitaError, match=naming(name, value)):
            chita.prune(model, BATCHES, **given)
    for name in ("progress", "sync"):
        with pytest.raises(ChitaError, match=naming(name, value)):
            chita.recover(model, BATCHES, loss="cross_entropy", **{name: value})
    assert torch.equal(model[0].weight, before) and not (tmp_path / "run").exists()
