"""chita.recover: what it gains, holds and restores."""

from __future__ import annotations

import copy
import math
import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from chita.errors import ChitaError
from chita.model.weights import Weights
from chita.pruning import budget as budget_module
from chita.pruning.budget import Budget
from chita.pruning.fewer_samples import LEAST_CHECKED
from chita.pruning.recovery import guarded_training as recovery_module
from chita.pruning.recovery.pool import LEAST_BATCH
from tests.support.clock import StepClock
from tests.support.gloo import on_ranks
from tests.support.guarded import accuracy_of, fit
from tests.support.interrupting import interrupt_at
from tests.support.messages import naming, says
from tests.support.pruning import (
    cut,
    digits,
    mlpnet,
    numbers,
    points,
    prune_quietly,
    same,
    seeded,
    snapshot,
    tiny,
    unseen_digits,
)
from tests.support.recovering import halved, normalised, recover


def test_a_pruned_network_gets_its_accuracy_back() -> None:
    dense = mlpnet()
    result = prune_quietly(mlpnet(), digits(100), sparsity=0.95, method="magnitude")
    pruned = result.model
    before = accuracy_of(pruned, unseen_digits()[0])
    found = recover(pruned, digits(1000), masks=result.masks, teacher=dense, budget="150 steps")
    assert found.model is pruned and found.kept
    assert found.loss_after < 0.3 * found.loss_before
    assert (found.steps, found.samples) == (150, 850)
    assert 0 < found.seconds < 60 and 0 < found.rate < 1
    assert accuracy_of(pruned, unseen_digits()[0]) > before + 5
    for name, parameter in pruned.named_parameters():
        if name in result.masks:
            assert not bool(parameter[~result.masks[name]].any())


def test_labels_are_not_used_with_a_teacher() -> None:
    dense: Any = tiny()
    inputs = points(60)[0]
    found = []
    wrong = [(inputs, torch.full((60,), -7))]
    loader: Any = DataLoader(TensorDataset(inputs), 60)
    for batches in ([inputs], wrong, loader):
        model = halved(dense)
        recover(model, batches, teacher=dense)
        found.append(snapshot(model))
    assert same(found[0], found[1]) and same(found[0], found[2])


def test_the_users_loss_instead_of_a_teacher() -> None:
    pair = points(200)
    model: Any = halved(tiny())
    before = accuracy_of(model, pair)
    found = recover(model, cut(pair, 50), loss=F.cross_entropy, budget="200 steps")
    assert found.kept and found.loss_after < found.loss_before
    assert accuracy_of(model, pair) > before + 10


def test_masks_for_one_layer_keep_the_zeros_of_the_others() -> None:
    dense = tiny()
    pruned = halved(dense)
    before = pruned[2].weight.detach().clone()
    mask = torch.ones_like(pruned[0].weight, dtype=torch.bool)
    mask[0] = False
    recover(pruned, [points(80)[0]], teacher=dense, masks={"0.weight": mask}, budget="20 steps")
    assert torch.equal(pruned[2].weight != 0, before != 0)
    assert not bool(pruned[0].weight[0].any())


@pytest.mark.parametrize("sizes", [(1,) * 80, (1, 7, 64, 8), (64, 16)])
def test_the_sizes_of_the_batches_do_not_determine_the_size_of_a_step(
    sizes: tuple[int, ...],
) -> None:
    dense, seen = tiny(), list[int]()
    pruned = halved(dense)
    pruned.register_forward_hook(lambda _, given, out: seen.append(len(out)))
    inputs = list(points(80)[0].split(list(sizes)))
    for seed in range(4):
        recover(pruned, inputs, teacher=dense, budget="3 steps", seed=seed)
        assert max(seen) >= 16
        seen.clear()


def test_zeros_are_held_by_default_and_masks_may_name_any_parameter() -> None:
    """A kept weight that is zero may move; a pruned embedding stays pruned."""

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(9, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.embedding(x).mean(1))
            return out

    dense: Any = seeded(Bag)
    inputs = numbers(60, 5).mul(50).long().remainder(9)
    draw = torch.Generator().manual_seed(0)
    masks = {
        name: torch.rand(parameter.shape, generator=draw) < 0.5
        for name, parameter in dense.named_parameters()
        if name.endswith("weight")
    }
    model: Any = copy.deepcopy(dense)
    with torch.no_grad():
        model.head.weight[masks["head.weight"]] = 0.0
    recover(model, [inputs], masks=masks, teacher=dense)
    assert torch.equal(model.embedding.weight != 0, masks["embedding.weight"])
    assert torch.equal(model.head.weight != 0, masks["head.weight"])
    recover(model, [inputs], teacher=dense, seed=1)
    assert torch.equal(model.head.weight != 0, masks["head.weight"])
    moved = (model.embedding.weight != 0) & ~masks["embedding.weight"]
    assert bool(moved.any())  # it is not prunable by default


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_models_of_both_precisions(dtype: torch.dtype) -> None:
    dense: Any = normalised().to(dtype)
    model = halved(dense)
    zeros = Weights(model).vector() == 0
    found = recover(model, [points(200)[0].to(dtype)], teacher=dense, budget="100 steps")
    assert found.kept and found.loss_after < 0.8 * found.loss_before
    assert torch.equal(Weights(model).vector() == 0, zeros)


def test_a_training_that_diverges_is_undone_with_its_buffers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dense = normalised()
    model = halved(dense)
    before = snapshot(model)
    monkeypatch.setattr(recovery_module, "find_rate", lambda loss_at, before: 1e6)
    found = recover(model, [points(80)[0]], teacher=dense)
    assert not found.kept and found.loss_after == found.loss_before
    assert same(snapshot(model), before)
    assert says(caplog.text, "undone")


@pytest.mark.parametrize("moment", [0, 3, 30, 200])
def test_an_interruption_leaves_the_weights_of_before(moment: int) -> None:
    dense = normalised()
    model = halved(dense).train()
    before = snapshot(model)
    interrupt_at(model, moment)
    with pytest.raises(KeyboardInterrupt):
        recover(model, [points(80)[0]], teacher=dense, budget="500 steps")
    assert same(snapshot(model), before)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("moment", [40, 100])
def test_a_loss_that_is_not_finite_in_the_middle(moment: int) -> None:
    """After the range test or within it: the weights stay finite and are not worse."""
    model = halved(normalised())
    pair, calls = points(80), 0

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        calls += torch.is_grad_enabled()
        return F.cross_entropy(outputs, targets) * (math.nan if calls == moment else 1.0)

    found = recover(model, [pair], loss=loss, budget="200 steps")
    assert found.loss_after <= found.loss_before
    assert all(bool(tensor.isfinite().all()) for tensor in snapshot(model).values())


def test_a_loss_that_is_never_finite() -> None:
    model = halved(normalised())
    before = snapshot(model)
    with pytest.raises(ChitaError, match=naming("loss", "finite")):
        recover(model, [points(80)], loss=lambda out, y: out.sum() * math.nan)
    assert same(snapshot(model), before)


def test_the_seed_determines_every_bit() -> None:
    dense = normalised()
    found = []
    for seed in (0, 0, 1):
        model = halved(dense)
        state = torch.get_rng_state()
        recover(model, cut(points(80), 20), teacher=dense, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        found.append(snapshot(model))
    assert same(found[0], found[1]) and not same(found[0], found[2])


def test_frozen_parameters_stay_also_pruned_ones() -> None:
    dense: Any = tiny()
    model = halved(dense)
    model[0].requires_grad_(False)
    before = snapshot(model)
    assert recover(model, [points(400)[0]], teacher=dense, budget="100 steps").kept
    moved = {
        name for name, tensor in snapshot(model).items() if not torch.equal(tensor, before[name])
    }
    assert moved == {"2.weight", "2.bias"}


def test_a_network_of_few_samples_and_one_batch() -> None:
    dense: Any = tiny()
    for samples in (2, 3, 20):
        found = recover(halved(dense), [points(samples)[0]], teacher=dense)
        assert found.samples == samples - max(1, int(0.15 * samples))
        assert found.loss_after <= found.loss_before


def test_a_budget_of_seconds_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    StepClock(monkeypatch, step=0.01)
    dense: Any = mlpnet()
    pruned: Any = halved(dense)
    found = recover(pruned, digits(500), teacher=dense, budget=4)
    assert found.kept and 0.8 * 4 < found.seconds <= 4
    assert found.steps > 20


class Slow(nn.Module):
    """A network whose forward pass takes a fixed time for each sample."""

    def __init__(self, network: nn.Module, seconds: float) -> None:
        super().__init__()
        self.network, self.seconds = network, seconds
        self.trained_on, self.checked = list[int](), list[int]()

    def forward(self, x: Tensor) -> Tensor:
        (self.trained_on if torch.is_grad_enabled() else self.checked).append(len(x))
        time.sleep(self.seconds * len(x))
        out: Tensor = self.network(x)
        return out


def test_a_slow_network_has_smaller_steps_and_fewer_held_out_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The least 8 steps of a named budget must take 0.4 s; a step of 85 samples takes 0.17 s."""
    short = Budget(0.4, least_steps=600, floor_steps=8)
    monkeypatch.setitem(budget_module.BUDGETS, "fast", short)
    found = {}
    for budget in ("fast", "8 steps"):
        model = Slow(halved(tiny()), 2e-3)
        result = recover(model, [points(800)[0]], teacher=tiny(), budget=budget)
        assert result.steps == 8
        found[budget] = model.trained_on[-1], model.checked[-1]
    assert found["8 steps"] == (85, 120)
    batch, checked = found["fast"]
    assert LEAST_BATCH <= batch <= 25 and checked == LEAST_CHECKED


def test_a_teacher_of_another_architecture_may_teach() -> None:
    pair = points(400)
    teacher: Any = seeded(lambda: nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 3)))
    teacher = teacher.double()
    fit(teacher, pair)
    model: Any = halved(tiny())
    found = recover(model, [pair[0]], teacher=teacher, budget="200 steps")
    assert found.kept and accuracy_of(model, pair) > 60


def on_rank(rank: int) -> list[Any]:
    found = []
    for budget in ("30 steps", 3):
        dense = normalised()
        model = halved(dense)
        result = recover(model, cut(points(200), 20), teacher=dense, budget=budget)
        found.append((snapshot(model), result.steps, result.loss_after, result.loss_before))
    return found


@pytest.mark.slow
def test_ranks_have_the_same_network() -> None:
    """Also where the steps depend on the time, which each rank measures for itself."""
    first, second = on_ranks(2, on_rank)
    assert not isinstance(first, Exception), first
    for one, other in zip(first, second, strict=True):
        assert same(one[0], other[0])
        assert one[1:] == other[1:]
        assert one[2] < one[3]
