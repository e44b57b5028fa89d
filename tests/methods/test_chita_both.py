"""chita-both as a method of chita.prune: its ends are chita-layer and the Fisher problem."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import chita
from chita import ChitaError, PruneResult
from chita.curvature import gradient_matrix
from chita.model.samples.arrays import InputSpec
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.pruning.auto.candidates import SHARES
from tests.pruning.block_by_block.networks import build, inputs_of
from tests.support.messages import naming
from tests.support.pruning import cut, points, snapshot, tiny

RIDGE = 0.05


def prune(model: nn.Module, batches: Any, **given: Any) -> PruneResult:
    keywords = {"sparsity": 0.5, "method": "chita-both", "ridge": RIDGE, "batch": 1, **given}
    return chita.prune(model, batches, progress=False, **keywords)


@pytest.mark.parametrize(
    ("kind", "sparsity"), [("tiny", 0.5), ("gpt2", 0.5), ("gpt2", "2:4"), ("vit", "2:4")]
)
def test_inputs_alone_are_chita_layer(kind: str, sparsity: float | str) -> None:
    pytest.importorskip("transformers")
    batches: list[Any] = [points(24)] if kind == "tiny" else [inputs_of(kind)]
    found = []
    for arguments in ({"layer_share": 1.0}, {"method": "chita-layer"}):
        model = tiny() if kind == "tiny" else build(kind)
        prune(model, batches, sparsity=sparsity, **arguments)
        found.append(snapshot(model))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def columns_of(model: nn.Module, batches: list[Any], rows: int) -> dict[str, Tensor]:
    """The columns of A for each weight in the order in which it is stored, (size, n)."""
    weights = Weights(model)
    stream = SampleStream(batches, spec=InputSpec.of(model))
    found = gradient_matrix(model, weights, stream, rows=rows, batch=1)
    return {w.name: found.matrix.read(w.start, w.stop) for w in weights}


@pytest.mark.parametrize("kind", ["tiny", "gpt2", "llama", "vit"])
def test_gradients_alone_are_the_fisher_problem_of_each_layer(kind: str) -> None:
    """The weights are those of chita.solve's problem on the same support, in any storage order."""
    pytest.importorskip("transformers")
    batches: list[Any] = [points(24)] if kind == "tiny" else [inputs_of(kind)]
    model, dense = (tiny() if kind == "tiny" else build(kind) for _ in range(2))
    result = prune(model, batches, layer_share=0.0)
    columns = columns_of(dense, batches, 24)
    assert result.stages[0].ridge == RIDGE and result.stages[0].sample_gradients == 24
    for name, mask in result.masks.items():
        w0 = dense.get_parameter(name).detach().flatten()
        a = columns[name].mT / columns[name].square().sum(1).mean().sqrt()
        kept = mask.flatten().nonzero()[:, 0]
        d = a[:, kept]
        right = d.mT @ (a @ w0) + RIDGE * w0[kept]
        system = d.mT @ d + RIDGE * torch.eye(len(kept), dtype=w0.dtype)
        expected = torch.zeros_like(w0)
        expected[kept] = torch.linalg.solve(system, right)
        found = model.get_parameter(name).detach().flatten()
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
        solved = chita.solve(a, w0, len(kept), lam=RIDGE / 24, method="bso")
        own = a @ (found - w0)
        value = float(own @ own + RIDGE * (found - w0).square().sum()) / 2
        assert value <= solved.objective * 1.02  # its own support is about as good


def test_the_choice_is_no_worse_than_either_part() -> None:
    """On the held-out samples; a later stage may move lambda, and keeps t."""
    model = tiny()
    result = prune(model, cut(points(200), 10), ridge="auto", stages=2, samples=40)
    for number, stage in enumerate(result.stages):
        trials = stage.candidates
        least = min(trial["loss"] for trial in trials)
        assert stage.choice_loss == pytest.approx(least)
        best = min(trials, key=lambda trial: float(trial["loss"]))
        assert stage.candidate.to_dict()["layer_share"] == best["layer_share"]
        assert stage.ridge == best["ridge"]
        if number == 0:
            tried = [trial["layer_share"] for trial in trials if trial["ridge"] == 0.01]
            assert tried == list(SHARES)
    assert result.stages[0].loss is not None
    shares = [stage.candidate.to_dict()["layer_share"] for stage in result.stages]
    assert shares[0] == shares[1]


@pytest.mark.parametrize("pattern", ["1:2", "2x1"])
def test_patterns(pattern: str) -> None:
    model = tiny()
    result = prune(model, [points(24)], pattern=pattern, layer_share=0.5)
    for name, mask in result.masks.items():
        assert int(mask.sum()) == mask.numel() // 2
        w = model.get_parameter(name).detach()
        assert not w[~mask].any()
        if pattern == "1:2":
            assert bool((mask.view(-1, 2).sum(1) == 1).all())


@pytest.mark.parametrize("given", [{"storage": "bfloat16"}, {"memory": "16GB"}])
def test_storages_give_about_the_same(given: dict[str, Any]) -> None:
    batches, found = [points(24)], []
    for arguments in ({}, given):
        model = tiny()
        prune(model, batches, layer_share=0.5, **arguments)
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(found[1], found[0], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("given", [{"loss": "distill"}, {"first_order": True}, {"recover": True}])
def test_other_options_apply(given: dict[str, Any]) -> None:
    """Labels are not needed with distillation, and training may follow."""
    budget = {"budget": "4 steps"} if "recover" in given else {}
    models = tiny(), tiny()
    for model, options in zip(models, ({}, given), strict=True):
        own = {} if options == {} else budget
        result = prune(model, cut(points(80), 8), layer_share=0.5, **options, **own)
        assert result.nonzeros == 36
    assert not torch.equal(models[0].get_parameter("0.weight"), models[1].get_parameter("0.weight"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layer_share": 1.5}, naming("layer_share", 1.5)),
        ({"layer_share": "both"}, naming("layer_share", "'both'")),
        ({"layer_share": 0.5, "method": "chita-layer"}, naming("layer_share=0.5", "chita-both")),
        ({"metric": "fisher"}, naming("metric='fisher'", "chita-both")),
        ({"drop_dead": True}, naming("drop_dead=True")),
        ({"block_size": 10, "block_sweeps": 1}, naming("block_sweeps=1", "chita-both")),
    ],
)
def test_options_that_do_not_apply(given: dict[str, Any], message: Any) -> None:
    with pytest.raises(ChitaError, match=message):
        prune(tiny(), [points(24)], **given)


def test_gradients_alone_need_a_ridge() -> None:
    model, before = tiny(), snapshot(tiny())
    with pytest.raises(ChitaError, match=naming("ridge")):
        prune(model, [points(24)], layer_share=0.0, ridge=0)
    assert all(torch.equal(w, before[name]) for name, w in snapshot(model).items())
