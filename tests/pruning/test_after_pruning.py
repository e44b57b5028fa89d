"""Each path that docs/howto/after_pruning.md describes keeps the zeros of a pruned network."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import chita
from chita import zoo
from tests.support.pruning import digits, mlpnet, same, snapshot

PRUNED = 32360 - 1618  # of MLPNet's weights at 95 %


@pytest.fixture
def model() -> nn.Module:
    made = mlpnet()
    chita.prune(made, [], sparsity=0.95, method="magnitude", progress=False)
    return made


def train(model: nn.Module, optimizer: torch.optim.Optimizer, each: Any = lambda: None) -> None:
    for inputs, labels in digits(300):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        each()


def zeros(masks: dict[str, Tensor]) -> int:
    return sum(int((~mask).sum()) for mask in masks.values())


def assert_same_zeros(found: nn.Module, model: nn.Module) -> None:
    masks = chita.masks_of(found)
    assert zeros(masks) == PRUNED and same(masks, chita.masks_of(model))


def test_training_without_keep_masks_loses_the_zeros(model: nn.Module) -> None:
    """The reason for all of this."""
    train(model, torch.optim.AdamW(model.parameters()))
    assert zeros(chita.masks_of(model)) < 0.5 * PRUNED


def test_training_with_a_hook_of_ones_own(model: nn.Module) -> None:
    masks, optimizer = chita.masks_of(model), torch.optim.AdamW(model.parameters())
    hook = optimizer.register_step_post_hook(lambda *_: chita.apply_masks(model, masks))
    train(model, optimizer)
    hook.remove()
    assert zeros(chita.masks_of(model)) == PRUNED


@pytest.mark.parametrize("kind", ["state", "whole", "safetensors", "packed", "optimizer"])
def test_files(model: nn.Module, kind: str, tmp_path: Path) -> None:
    ending = "safetensors" if kind in ("safetensors", "packed") else "pt"
    file, fresh = tmp_path / f"model.{ending}", zoo.MLPNet()
    if kind == "state":
        torch.save(model.state_dict(), file)
        fresh.load_state_dict(torch.load(file, weights_only=True))
    elif kind == "whole":
        torch.save(model, file)
        fresh = torch.load(file, weights_only=False)
    elif kind == "safetensors":
        save_file(model.state_dict(), file)
        fresh.load_state_dict(load_file(file))
    elif kind == "packed":
        chita.save(model, file)
        chita.load(file, into=fresh)
    else:  # a checkpoint in the middle of a training, which then continues
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        with chita.keep_masks(model, optimizer):
            train(model, optimizer)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, file)
        state = torch.load(file, weights_only=True)
        fresh.load_state_dict(state["model"])
        other = torch.optim.AdamW(fresh.parameters())
        other.load_state_dict(state["optimizer"])
        with chita.keep_masks(fresh, other):
            train(fresh, other)
    assert_same_zeros(fresh, model)
    assert same(snapshot(fresh), snapshot(model)) == (kind != "optimizer")


def test_copies(model: nn.Module) -> None:
    assert_same_zeros(copy.deepcopy(model), model)
    assert_same_zeros(pickle.loads(pickle.dumps(model)), model)
    assert_same_zeros(copy.deepcopy(model).bfloat16(), model)
    assert_same_zeros(copy.deepcopy(model).double(), model)
    half = chita.masks_of(copy.deepcopy(model).half())  # numbers below 6e-8 become zero as well
    kept = chita.masks_of(model)
    assert all(not bool((half[name] & ~kept[name]).any()) for name in kept)


@pytest.mark.slow
def test_a_compiled_model(model: nn.Module) -> None:
    compiled: Any = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(compiled.parameters(), lr=1e-2)
    before = chita.masks_of(compiled)
    with chita.keep_masks(compiled, optimizer):
        train(compiled, optimizer)
    assert same(chita.masks_of(compiled), before) and zeros(before) == PRUNED
    assert_same_zeros(compiled._orig_mod, model)


def test_weight_averages(model: nn.Module) -> None:
    """One that began with the pruned network has its zeros; an older one needs the masks."""
    older = AveragedModel(mlpnet(), multi_avg_fn=get_ema_multi_avg_fn(0.9))
    older.update_parameters(mlpnet())  # the first update copies
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def update() -> None:
        for each in (older, average):
            each.update_parameters(model)

    with chita.keep_masks(model, optimizer):
        train(model, optimizer, update)
    assert_same_zeros(average, model)
    assert not torch.equal(average.module.get_parameter("fc1.weight"), model.fc1.weight)  # type: ignore[operator,union-attr]
    update()
    assert zeros(chita.masks_of(older)) < PRUNED
    chita.apply_masks(older, chita.masks_of(model))
    assert_same_zeros(older, model)


def test_adapters_are_merged_and_masked(model: nn.Module) -> None:
    """A low-rank update is dense, so the masks are applied after it is added."""
    masks = chita.masks_of(model)
    before = copy.deepcopy(model)
    with torch.no_grad():
        model.get_parameter("fc1.weight").add_(torch.randn(40, 2) @ torch.randn(2, 784))
    assert zeros(chita.masks_of(model)) < PRUNED
    chita.apply_masks(model, masks)
    assert_same_zeros(model, before)


def test_recover_takes_masks_of_the_model(model: nn.Module) -> None:
    before, wrapped = copy.deepcopy(model), nn.DataParallel(model)
    for target, masks in ((model, chita.masks_of(model)), (wrapped, chita.masks_of(wrapped))):
        chita.recover(
            target, digits(300), masks=masks, teacher=mlpnet(), budget="5 steps", progress=False
        )
        assert_same_zeros(model, before)


@pytest.mark.slow
def test_onnx(model: nn.Module, onnx: None, tmp_path: Path) -> None:
    from onnx import load, numpy_helper

    chita.export_onnx(model, torch.randn(2, 1, 28, 28), tmp_path / "model.onnx")
    stored = [numpy_helper.to_array(t) for t in load(tmp_path / "model.onnx").graph.initializer]
    assert sum(int((t == 0).sum()) for t in stored if t.ndim == 2) == PRUNED


@pytest.mark.slow
def test_torch_export(model: nn.Module, tmp_path: Path) -> None:
    program = torch.export.export(model.eval(), (torch.randn(2, 1, 28, 28),))
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    masks = chita.masks_of(loaded, include="*.weight")  # its layers have no types any more
    assert zeros(masks) == PRUNED and same(masks, chita.masks_of(model))


CHILD = """
import sys
import torch
import chita

model = chita.zoo.get("mlpnet").build()
if sys.argv[1].endswith(".pt"):
    model.load_state_dict(torch.load(sys.argv[1], weights_only=True))
else:
    chita.load(sys.argv[1], into=model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
with chita.keep_masks(model, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 1, 28, 28)).square().sum().backward()
        optimizer.step()
torch.save(model.state_dict(), sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_another_process(model: nn.Module, name: str, tmp_path: Path) -> None:
    if name.endswith(".pt"):
        torch.save(model.state_dict(), tmp_path / name)
    else:
        chita.save(model, tmp_path / name)
    arguments = [sys.executable, "-c", CHILD, str(tmp_path / name), str(tmp_path / "after.pt")]
    subprocess.run(arguments, check=True, env=dict(os.environ), timeout=300)
    trained = zoo.MLPNet()
    trained.load_state_dict(torch.load(tmp_path / "after.pt", weights_only=True))
    assert_same_zeros(trained, model)
    assert not same(snapshot(trained), snapshot(model))


@pytest.mark.slow
def test_save_pretrained(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config)
    result = chita.prune(model, [], sparsity=0.8, method="magnitude", progress=False)
    model.save_pretrained(tmp_path)
    for dtype in (torch.float32, torch.bfloat16):
        loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, dtype=dtype)
        assert same(chita.masks_of(loaded), result.masks)
    optimizer = torch.optim.AdamW(loaded.parameters(), lr=1e-2)
    tokens = torch.randint(20, (4, 8))
    with chita.keep_masks(loaded, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            loaded(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
    loaded.save_pretrained(tmp_path / "trained")
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "trained")
    assert same(chita.masks_of(again), result.masks)
    assert again.lm_head.weight is again.transformer.wte.weight
