"""chita.prune with recovery on kinds of networks and data, on ranks and against the clock."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import chita
from chita import ChitaError, PruneResult
from chita.methods.magnitude import LargestWeights
from chita.model.weights import Weights
from chita.pruning.config import kept_weights
from tests.support.clock import StepClock
from tests.support.gloo import on_ranks
from tests.support.guarded import fit
from tests.support.messages import naming, says
from tests.support.pruning import cut, digits, mlpnet, numbers, points, same, seeded, snapshot, tiny
from tests.support.recovering import Tied, normalised

DATA = cut(points(400), 50)


def prune(model: nn.Module, batches: Any = DATA, **keywords: Any) -> PruneResult:
    defaults: dict[str, Any] = {"sparsity": 0.7, "recover": True, "budget": "60 steps", "stages": 2}
    return chita.prune(model, batches, progress=False, **{**defaults, **keywords})


def check(model: nn.Module, result: PruneResult) -> None:
    """The masks are those of the weights, all is finite, and some training was kept."""
    weights = Weights(model, include=list(result.masks))
    assert int(weights.vector().count_nonzero()) == result.nonzeros
    assert result.nonzeros == kept_weights(result.weights, 0.7)
    assert all(bool(tensor.isfinite().all()) for tensor in snapshot(model).values())
    assert any(row.recovered for row in result.stages)


def layer_norm() -> nn.Module:
    layers = nn.Linear(6, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 3)
    return nn.Sequential(*layers).double()


NETWORKS: dict[str, Any] = {
    "plain": tiny,
    "batch norm": lambda: normalised().eval(),
    "layer norm": layer_norm,
    "tied": lambda: Tied().double(),
}


@pytest.mark.parametrize("method", ["auto", "magnitude"])
@pytest.mark.parametrize("kind", list(NETWORKS))
def test_networks_of_every_normalisation(kind: str, method: str) -> None:
    model = seeded(NETWORKS[kind])
    fit(model, points(200))
    model.train()
    result = prune(model, method=method)
    check(model, result)
    assert all(module.training for module in model.modules())
    if isinstance(model, Tied):
        assert model.one.weight is model.two.weight


def test_a_bfloat16_network() -> None:
    model = tiny()
    fit(model, points(200))
    model.to(torch.bfloat16)
    before = snapshot(model)
    result = prune(model, [(x.to(torch.bfloat16), y) for x, y in DATA])
    check(model, result)
    assert all(tensor.dtype == torch.bfloat16 for tensor in snapshot(model).values())
    assert not same(snapshot(model), before)


def test_features_are_recovered_by_squares() -> None:
    """A regression with a loss function, and a network of one output."""
    inputs = numbers(200, 6)
    targets = inputs[:, :2].tanh()
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 2))).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    result = prune(model, cut((inputs, targets), 50), loss=F.mse_loss)
    check(model, result)
    assert result.stages[-1].choice_loss < result.stages[-1].solved_loss  # type: ignore[operator]


@pytest.mark.parametrize("loss", ["distill", "distill-mse"])
def test_inputs_without_labels(loss: str) -> None:
    model = tiny()
    fit(model, points(200))
    check(model, prune(model, [x for x, _ in DATA], loss=loss))


def test_samples_of_different_shapes() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layers(x).mean(1)
            return out

    data = [(numbers(30, 2 + n % 3, 6, seed=n), torch.arange(30) % 3) for n in range(7)]
    model = seeded(Pooled).double()
    result = prune(model, data)
    assert int(Weights(model).vector().count_nonzero()) == result.nonzeros == kept_weights(72, 0.7)
    for row in result.stages:
        assert row.choice_loss <= row.solved_loss  # type: ignore[operator]


def test_frozen_layers_are_pruned_and_recovered_and_others_stay() -> None:
    model: Any = tiny()
    fit(model, points(200))
    model.requires_grad_(False)
    bias = model[0].bias.clone()
    result = prune(model, method="magnitude")
    check(model, result)
    assert torch.equal(model[0].bias, bias)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_outputs_that_cannot_be_compared(caplog: pytest.LogCaptureFixture) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = tiny()

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"boxes": self.inner(x)}

    model = Named()
    fit(model.inner, points(200))
    result = prune(model, loss=lambda out, y: F.cross_entropy(out["boxes"], y), method="magnitude")
    check(model, result)
    assert says(caplog.text, "recovery", "loss")


@pytest.mark.parametrize("method", ["auto", "magnitude"])
@pytest.mark.parametrize("samples", [3, 20])
def test_data_of_one_small_batch(samples: int, method: str) -> None:
    model = tiny()
    result = prune(model, [points(samples)], method=method, budget="10 steps")
    assert result.nonzeros == kept_weights(72, 0.7)
    assert int(Weights(model).vector().count_nonzero()) == result.nonzeros


@pytest.mark.parametrize("moment", [30, 60, 150, 240])
def test_a_loss_that_is_not_finite_in_the_middle(moment: int) -> None:
    """The user's loss trains here: outputs that cannot be compared leave no other."""

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = normalised()

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"boxes": self.inner(x)}

    calls = 0

    def loss(out: Any, y: Tensor) -> Tensor:
        nonlocal calls
        calls += torch.is_grad_enabled()
        bad = torch.is_grad_enabled() and calls == moment
        return F.cross_entropy(out["boxes"], y) * (math.nan if bad else 1.0)

    model = seeded(Named)
    result = prune(model, loss=loss, method="magnitude", budget="200 steps")
    assert calls > moment
    assert all(bool(tensor.isfinite().all()) for tensor in snapshot(model).values())
    assert result.nonzeros == kept_weights(72, 0.7)
    for row in result.stages:
        assert row.choice_loss <= row.solved_loss  # type: ignore[operator]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_gradients_are_disabled(mode: Any) -> None:
    one, other = normalised(), normalised()
    prune(one)
    with mode():
        prune(other)
    assert same(snapshot(one), snapshot(other))


def test_a_copy_leaves_the_network() -> None:
    model = normalised()
    before = snapshot(model)
    result = prune(model, inplace=False)
    assert same(snapshot(model), before) and result.model is not model


def test_a_budget_of_seconds_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StepClock(monkeypatch, step=0.01)
    result = prune(mlpnet(), digits(1000), sparsity=0.9, budget=4, stages=None)
    assert 0.8 * 4 < clock.now <= 4
    assert len(result.stages) > 1


@pytest.mark.parametrize(("stages", "solve", "late"), [(1, 5.0, 1), (3, 3.0, 2), (3, 0.5, 0)])
def test_solves_that_use_up_the_budget(
    stages: int,
    solve: float,
    late: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One warning, in the stage that is late; the run still reaches its target."""
    clock, run = StepClock(monkeypatch, step=0.01), LargestWeights.run

    def slow(*arguments: Any) -> Any:
        clock.now += solve
        return run(*arguments)

    monkeypatch.setattr(LargestWeights, "run", slow)
    result = prune(normalised(), method="magnitude", budget=4, stages=stages)
    assert len(result.stages) == stages
    assert result.nonzeros == kept_weights(72, 0.7)
    warnings = [record.message for record in caplog.records if "budget" in record.message]
    assert len(warnings) == bool(late)
    parts = (f"{late} of {stages}", f"{late * solve:g} s", "4 s", "method", "larger budget")
    assert all(says(text, *parts) for text in warnings)


RUNS: dict[str, dict[str, Any]] = {
    "steps": {},
    "seconds": {"budget": 5.0, "stages": None},
    "bso": {"method": "chita-bso", "batch": 4},
}


def on_rank(rank: int) -> Any:
    with pytest.raises(ChitaError, match=naming("budget", "recover=False")):
        prune(normalised(), budget=1e-4)
    found = {}
    for name, options in RUNS.items():
        model = normalised()
        result = prune(model, **options)
        losses = [row.choice_loss for row in result.stages]
        found[name] = snapshot(model), losses, result.nonzeros
    return found


@pytest.mark.slow
def test_ranks_have_the_same_network() -> None:
    """They share the batches: the network is not that of one process, but it is the same on all."""
    one, other = on_ranks(2, on_rank)
    assert not isinstance(one, Exception), one
    for name in RUNS:
        assert same(one[name][0], other[name][0]), name
        assert one[name][1:] == other[name][1:]
        assert one[name][2] == kept_weights(72, 0.7)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classifier", "gpt2"])
def test_hugging_face_models(kind: str) -> None:
    """A classifier of tuples and dicts, and a language model with tied weights and labels."""
    transformers = pytest.importorskip("transformers")
    from tests.pruning.test_prune_transformers import build, inputs_of

    model, inputs = build(kind), inputs_of(kind, 40)
    labels = inputs["input_ids"] if kind == "gpt2" else torch.arange(40) % 3
    # With a metric of gradients, "auto" remains a search in a language model.
    given = {"metric": "fisher"} if kind == "gpt2" else {}
    result = prune(model, [{**inputs, "labels": labels}], budget="30 steps", **given)
    check(model, result)
    if kind == "gpt2":
        assert isinstance(model, transformers.GPT2LMHeadModel)
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
