"""chita.accelerate."""

from __future__ import annotations

import json
import sys
import time

import pytest
import torch
from torch import Tensor, nn

import chita
from chita.deploy.fast.forms import FORMS
from chita.errors import ChitaError
from chita.zoo import ResNet20
from tests.deploy.sparse_models import normal, sparse, wide
from tests.support.messages import naming, says
from tests.support.pruning import same, seeded, snapshot

accelerate_module = sys.modules[
    "chita.deploy.fast.accelerate"
]  # the name is that of the function too


class Sluggish(nn.Linear):
    """A Linear layer that takes a millisecond."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.001)
        return super().forward(x)

    def inner(self) -> nn.Linear:
        plain = nn.Linear(8, 8)
        plain.load_state_dict(self.state_dict())
        return plain


@torch.no_grad()
def test_layers_are_timed_in_every_form_and_the_output_stays() -> None:
    model, x = wide(0.99), normal(64, 512)
    before = snapshot(model)
    fast = chita.accelerate(model, x)
    assert same(snapshot(model), before)
    assert [row.name for row in fast.layers] == ["0", "2"]  # the last has no zeros
    for row in fast.layers:
        assert row.shape == (512, 512) and row.sparsity == pytest.approx(0.99, abs=0.002)
        assert {"dense", "csr", "sums"} <= set(row.timings)
        assert row.timings[row.chosen].median <= row.timings["dense"].median
    other = normal(5, 512, seed=7)
    for inputs in (x, other):
        torch.testing.assert_close(fast.model(inputs), model(inputs), rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("fake_clock")
def test_a_faster_form_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerate_module, "is_linear_map", lambda m: type(m) is Sluggish)
    monkeypatch.setitem(FORMS, "sums", lambda layer: layer.inner())  # type: ignore[operator]
    layer, x = sparse(Sluggish(8, 8), 0.5), normal(4, 8)
    fast = chita.accelerate(nn.Sequential(layer), x)
    (row,) = fast.layers
    assert row.chosen == "sums" and fast.changed and says(row.reason, "dense")
    assert row.timings["sums"].beats(row.timings["dense"])
    with torch.no_grad():
        torch.testing.assert_close(fast.model(x), layer(x))


@pytest.mark.usefixtures("fake_clock")
def test_nothing_is_changed_where_nothing_gains() -> None:
    model = nn.Sequential(sparse(nn.Linear(20, 10), 0.2), nn.ReLU(), sparse(nn.Linear(10, 5), 0.2))
    fast = chita.accelerate(model, normal(1, 20))
    assert [row.chosen for row in fast.layers] == ["dense", "dense"] and not fast.changed
    assert isinstance(fast.model[0], nn.Linear) and fast.model is not model  # type: ignore[index]
    assert fast.layers[0].reason


@pytest.mark.parametrize("form", ["compact", "csr", "sums"])
@torch.no_grad()
def test_a_form_that_is_asked_for_is_taken_wherever_it_fits(form: str) -> None:
    model = seeded(ResNet20).eval()
    for seed, module in enumerate(model.modules()):
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            sparse(module, 0.9, seed)
            module.weight[:2] = 0
    x = normal(2, 3, 32, 32)
    finished: list[tuple[int, int]] = []
    fast = chita.accelerate(
        model, x, form=form, progress=lambda done, layers: finished.append((done, layers))
    )
    assert finished == [(n, len(fast.layers)) for n in range(1, len(fast.layers) + 1)]
    taken = [row for row in fast.layers if row.chosen == form]
    assert len(taken) == len(fast.layers) if form == "compact" else 1 <= len(taken) <= 3
    torch.testing.assert_close(fast.model(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("fake_clock")
def test_layers_that_gain_alone_stay_if_the_whole_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(nn.Module):
        """Fast alone, on a batch, but not where it is called row by row."""

        def __init__(self, layer: nn.Linear) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            time.sleep(0.0 if len(x) > 1 else 0.002)
            return self.layer(x)

    class RowByRow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = sparse(Sluggish(8, 8), 0.5)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.layer(x), *(self.layer(row) for row in x.split(1))])

    monkeypatch.setattr(accelerate_module, "is_linear_map", lambda m: type(m) is Sluggish)
    monkeypatch.setitem(FORMS, "csr", lambda layer: Slow(layer.inner()))  # type: ignore[operator]
    x = normal(4, 8)
    fast = chita.accelerate(RowByRow(), x)
    assert [row.chosen for row in fast.layers] == ["dense"] and not fast.changed
    assert says(fast.layers[0].reason, "model")
    assert isinstance(fast.model.layer, Sluggish)


def test_a_model_that_is_one_layer() -> None:
    layer, x = sparse(nn.Linear(8, 8), 0.9), normal(2, 8)
    fast = chita.accelerate(layer, x, form="csr")
    assert type(fast.model).__name__ == "SparseProduct"
    with torch.no_grad():
        torch.testing.assert_close(fast.model(x), layer(x))


def test_a_layer_whose_weight_the_model_reads_itself_stays() -> None:
    class Peeking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = sparse(nn.Linear(8, 8), 0.9)
            self.other = sparse(nn.Linear(8, 8), 0.9)

        def forward(self, x: Tensor) -> Tensor:
            return self.other(self.layer(x)) * self.layer.weight.sum()

    model, x = Peeking(), normal(2, 8)
    fast = chita.accelerate(model, x, form="csr")
    assert {row.name: row.chosen for row in fast.layers} == {"layer": "dense", "other": "csr"}
    assert "more" in fast.layers[0].reason
    with torch.no_grad():
        torch.testing.assert_close(fast.model(x), model(x))


def test_a_form_that_gives_something_else_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Zero(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros(len(x), 512)

    monkeypatch.setitem(FORMS, "wrong", lambda layer: Zero())
    monkeypatch.setitem(FORMS, "csr", lambda layer: None)
    monkeypatch.setitem(FORMS, "sums", lambda layer: None)
    fast = chita.accelerate(wide(), normal(64, 512))
    assert all("wrong" not in row.timings for row in fast.layers)
    fast = chita.accelerate(wide(), normal(64, 512), form="wrong")
    assert not fast.changed


def test_keywords_tuples_and_shared_layers() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = sparse(nn.Linear(6, 6), 0.8)
            self.b = self.a

        def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            return {"sum": self.a(input=x) + self.b(y)}

    model, x, y = Two(), normal(3, 6), normal(3, 6, seed=2)
    for example in ({"x": x, "y": y}, (x, y)):
        fast = chita.accelerate(model, example, form="sums").model
        assert fast.a is fast.b
        with torch.no_grad():
            torch.testing.assert_close(fast(x, y)["sum"], model(x, y)["sum"])


def test_the_table_and_json_hold_every_layer() -> None:
    fast = chita.accelerate(wide(size=64), normal(4, 64))
    rows = json.loads(json.dumps([layer.to_dict() for layer in fast.layers]))
    assert [row["name"] for row in rows] == ["0", "2"]
    assert {"low", "median", "high"} == set(rows[0]["timings"]["dense"])
    assert "64 x 64" in str(fast) and fast.layers[0].chosen in str(fast)


def test_wrong_arguments() -> None:
    with pytest.raises(ChitaError, match=naming("form", "compact", "fast")):
        chita.accelerate(wide(), normal(1, 512), form="fast")
    with pytest.raises(ChitaError, match=naming("model", "torch.nn.Module", "'x'")):
        chita.accelerate("x", normal(1, 3))  # type: ignore[arg-type]
    with pytest.raises(ChitaError, match=naming("example", "(1, 3)")):
        chita.accelerate(wide(), normal(1, 3))
