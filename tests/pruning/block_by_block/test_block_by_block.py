"""chita.prune block by block, against a loop that computes everything from scratch."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import chita
from chita import ChitaError, PruneResult
from chita.pruning.block_by_block import plan
from chita.pruning.block_by_block.layer_solver import LayerSolver, UnsolvedError
from chita.solver.layer_wise.dense_outputs import SHARE
from tests.pruning.block_by_block.networks import LAYERS, build, groups_of, inputs_of
from tests.support.messages import naming
from tests.support.pruning import numbers, seeded, snapshot

pytest.importorskip("transformers")

RIDGE = 0.02


def prune(model: nn.Module, batches: Any, **keywords: Any) -> PruneResult:
    given = {"sparsity": 0.5, "method": "block-obs", "ridge": RIDGE, "batch": 2, **keywords}
    return chita.prune(model, batches, progress=False, **given)


def inputs_to(model: nn.Module, name: str, inputs: dict[str, Tensor]) -> Tensor:
    """What a layer multiplies its weights with in a whole pass, (N, i), without padding."""
    seen: list[Tensor] = []
    layer = model.get_submodule(name)
    handle = layer.register_forward_hook(lambda layer, args, output: seen.append(args[0]))
    with torch.no_grad():
        model.eval()(**inputs)
    handle.remove()
    if isinstance(layer, nn.Conv2d):
        return nn.functional.unfold(seen[0], 4, stride=4).transpose(1, 2).flatten(0, 1)
    x, mask = seen[0], inputs.get("attention_mask")
    if mask is not None and x.shape[:2] == mask.shape:
        return x[mask.bool()]
    return x.reshape(-1, x.shape[-1])


def as_matrix(layer: nn.Module, weight: Tensor) -> Tensor:
    """A weight as (outputs, i): GPT-2 stores its transpose."""
    return weight.t() if type(layer).__name__ == "Conv1D" else weight.flatten(1)


def l_obs(w: Tensor, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The statistic and the update of L-OBS for known kept weights, (outputs, i) each."""
    h = x.t() @ x / len(x) + RIDGE * torch.eye(x.shape[1], dtype=x.dtype)
    inverse = torch.linalg.inv(h)
    moved = w - (~mask * w / inverse.diagonal()) @ inverse
    return w.square() / inverse.diagonal(), moved * mask


@pytest.mark.parametrize("kind", list(LAYERS))
def test_layers_see_what_is_pruned_before_them(kind: str) -> None:
    """For each group: a copy with all earlier groups pruned, and the others dense."""
    model, inputs = build(kind), inputs_of(kind)
    scratch = copy.deepcopy(model)
    result = prune(model, [inputs])
    assert set(result.masks) == {f"{name}.weight" for group in groups_of(kind) for name in group}
    assert model.training and result.stages[0].loss is None
    for group in groups_of(kind):
        new: dict[str, Tensor] = {}
        for name in group:
            layer, x = scratch.get_submodule(name), inputs_to(scratch, name, inputs)
            w = as_matrix(layer, layer.get_parameter("weight").detach())
            mask = as_matrix(layer, result.masks[f"{name}.weight"])
            statistic, expected = l_obs(w, x, mask)
            found = model.get_submodule(name).get_parameter("weight").detach()
            torch.testing.assert_close(as_matrix(layer, found), expected, rtol=1e-7, atol=1e-9)
            assert statistic[mask].min() >= statistic[~mask].max()
            assert abs(int(mask.sum()) - mask.numel() / 2) <= 1
            new[name] = found
        for name, found in new.items():
            scratch.get_submodule(name).get_parameter("weight").data.copy_(found)


@pytest.mark.parametrize("kind", list(LAYERS))
def test_layers_keep_the_outputs_of_the_dense_network(kind: str) -> None:
    """For each group: its inputs with all earlier groups pruned, and in the dense network."""
    model, inputs = build(kind), inputs_of(kind)
    dense, scratch = copy.deepcopy(model), copy.deepcopy(model)
    result = prune(model, [inputs], method="chita-layer")
    for group in groups_of(kind):
        for name in group:
            layer, x, d = (
                scratch.get_submodule(name),
                inputs_to(scratch, name, inputs),
                inputs_to(dense, name, inputs),
            )
            w = as_matrix(layer, layer.get_parameter("weight").detach())
            mask = as_matrix(layer, result.masks[f"{name}.weight"])
            moment, unit = x.T @ x / len(x), torch.eye(x.shape[1]).double()
            damped = moment + RIDGE * moment.diagonal().mean() * unit
            target = w + SHARE * w @ (d.T @ x / len(x) - moment) @ torch.linalg.inv(damped)
            found = model.get_submodule(name).get_parameter("weight").detach()
            gradient = (as_matrix(layer, found) - target) @ damped  # zero on the support
            assert gradient[mask].abs().max() < 1e-9 * gradient.abs().max()
        for name in group:
            found = model.get_submodule(name).get_parameter("weight").detach()
            scratch.get_submodule(name).get_parameter("weight").data.copy_(found)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_2_of_4_along_the_inputs(kind: str) -> None:
    model = build(kind)
    result = prune(model, [inputs_of(kind)], sparsity="2:4")
    for group in groups_of(kind):
        for name in group:
            layer = model.get_submodule(name)
            w = as_matrix(layer, layer.get_parameter("weight").detach())
            assert bool(((w != 0).reshape(len(w), -1, 4).sum(2) == 2).all())
    assert result.groups is not None and list(result.groups) == [2]


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """The types of storage of the samples and of the outputs, as they are chosen."""
    seen: list[tuple[str, str]] = []
    kind = plan.StageSamples

    class Recorded(kind):  # type: ignore[misc, valid-type]
        def __init__(self, pieces: Any, batches: Any, states: Any) -> None:
            seen.append((type(batches).__name__, type(states).__name__))
            super().__init__(pieces, batches, states)

    monkeypatch.setattr(plan, "StageSamples", Recorded)
    monkeypatch.setattr(plan, "resident_bytes", lambda device: 0)
    return seen


@pytest.mark.parametrize("method", ["block-obs", "chita-layer"])
def test_places_of_the_outputs_give_the_same_bits(
    places: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    weights, inputs = [], inputs_of("llama")
    dense = method == "chita-layer"
    # The samples, and the outputs of a block; for the dense network these outputs as well, and the
    # inputs of the layers of a block: three have 16 features, and one has 24.
    need = 24 * 8 * (3 * 7 + 7 * 16 + dense * 7 * (16 + 3 * 16 + 24))
    # lm_head is the largest layer.
    work = plan.LIBRARIES + 8 * ((4 + dense) * 16 * 16 + 10 * 40 * 16)
    for memory, disk in ((work + need, None), (work, need), (work + need - 1, need - 1)):
        if disk is not None:
            space = plan.probe_disk()
            monkeypatch.setattr(
                plan, "probe_disk", lambda disk=disk, space=space: type(space)(disk, 1.0, 1.0)
            )
        model = build("llama")
        prune(model, [inputs], method=method, memory=memory, batch=1)
        weights.append(snapshot(model))
    assert places == [("InMemory", "InMemory"), ("OnDisk", "OnDisk"), ("InMemory", "NoneType")]
    for other in weights[1:]:
        assert all(torch.equal(weights[0][name], other[name]) for name in other)


def test_too_little_memory_is_an_error(places: list[tuple[str, str]]) -> None:
    model, before = build("llama"), snapshot(build("llama"))
    with pytest.raises(ChitaError, match=naming("memory=64 MB")):
        prune(model, [inputs_of("llama")], memory="64MB")
    assert places == [] and all(torch.equal(w, before[name]) for name, w in snapshot(model).items())


@pytest.mark.parametrize("ridge", [RIDGE, "auto"])
def test_nan_in_a_block_names_it_and_restores_the_model(ridge: Any) -> None:
    model = build("llama")
    with torch.no_grad():
        model.get_parameter("model.layers.1.input_layernorm.weight")[3] = torch.nan
    before = snapshot(model)
    error = naming("stage 1", "model.layers.1", "model.layers.1.self_attn.q_proj.weight")
    with pytest.raises(ChitaError, match=error):
        prune(model, [inputs_of("llama")], ridge=ridge, loss="distill")
    for name, w in snapshot(model).items():
        assert torch.equal(w.nan_to_num(), before[name].nan_to_num())


def test_a_lambda_without_a_solution_ranks_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for lambda goes on if the Hessian of a layer is singular for the smallest."""
    inputs = inputs_of("llama")
    model = build("llama")
    tried: list[float] = []
    own = LayerSolver.prune

    def fails(self: Any, weight: Any, moment: Any, k: int, formulation: Any, ridge: float) -> Any:
        tried.append(ridge)
        if ridge < 0.1:
            raise UnsolvedError("singular")
        return own(self, weight, moment, k, formulation, ridge)

    monkeypatch.setattr(LayerSolver, "prune", fails)
    result = prune(model, [inputs], ridge="auto")
    assert min(tried) < 0.1 and result.stages[0].ridge is not None
    assert result.stages[0].ridge >= 0.1


@pytest.mark.parametrize("loss", [None, "distill"])
def test_recovery_of_a_language_model(loss: str | None) -> None:
    """A whole run: stages, each followed by training, on dicts of token ids."""
    model, inputs = build("llama").float(), inputs_of("llama", 60)
    if loss is not None:
        del inputs["labels"]
    batches = [{key: x[i : i + 6] for key, x in inputs.items()} for i in range(0, 60, 6)]
    result = prune(model, batches, loss=loss, recover=True, budget="12 steps")
    assert result.sparsity == pytest.approx(0.5, abs=1e-3)
    assert result.training_steps > 0 and result.held_out_loss is not None
    for name, mask in result.masks.items():
        assert not bool(model.get_parameter(name)[~mask].any())


def test_a_tied_head_stays_tied_and_dense() -> None:
    import transformers as t

    sizes = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = t.LlamaConfig(**sizes, intermediate_size=24, tie_word_embeddings=True)
    model = seeded(lambda: t.LlamaForCausalLM(config)).double()
    before = model.get_parameter("model.embed_tokens.weight").detach().clone()
    result = prune(model, [inputs_of("llama")])
    head = model.get_submodule("lm_head").weight
    assert head is model.get_parameter("model.embed_tokens.weight")
    assert torch.equal(head.detach(), before) and not any("lm_head" in n for n in result.masks)


def test_groups_in_turn_cost_less_than_blocks_at_once() -> None:
    """Layers that know what is pruned before them keep the outputs of a block closer."""
    errors = {}
    x = numbers(400, 12)
    for at_once in (False, True):
        model = seeded(lambda: nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 12)))
        model = model.double()
        dense = model(x).detach()
        if at_once:
            first, second = copy.deepcopy(model), copy.deepcopy(model)
            prune(first, [(x, x)], loss="mse", include="0.weight")
            prune(second, [(x, x)], loss="mse", include="2.weight")
            model[0], model[2] = first[0], second[2]
        else:
            prune(model, [(x, x)], loss="mse")
        errors[at_once] = float((model(x).detach() - dense).square().mean())
    assert errors[False] < errors[True]
