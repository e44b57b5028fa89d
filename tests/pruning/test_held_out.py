"""The true loss on held-out samples."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.model.samples.batch import Batch, parse_batch
from chita.model.weights import Weights
from chita.pruning import held_out as held_out_module
from chita.pruning.held_out import HALF, SCREENING_LEAST, SCREENING_PART, HeldOut, PartLosses
from chita.solver.ranks import ALONE, Ranks
from tests.support.part_losses import losses
from tests.support.pruning import Watch, cut, points, same, snapshot, tiny


def held_out(model: nn.Module, size: int = 3, count: int = 20, ranks: Ranks = ALONE) -> HeldOut:
    return HeldOut(model, Weights(model), batches(size, count), None, ranks)


def batches(size: int, count: int) -> list[Batch]:
    """The last one may be smaller."""
    return [parse_batch(number, pair) for number, pair in enumerate(cut(points(count), size))]


def truth(w: Tensor, samples: int = 20, count: int = 20) -> float:
    """The mean over the first `samples` of `count`, of a model that has these weights."""
    model, (x, t) = tiny(), points(count)
    Weights(model).assign(w)
    with torch.no_grad():
        return functional.cross_entropy(model(x[:samples]), t[:samples]).item()


def test_the_loss_of_other_weights_leaves_the_models_alone() -> None:
    model = tiny().train()
    before, w = snapshot(model), Weights(tiny(seed=1)).vector()
    found = held_out(model)
    assert found.losses(w).mean == pytest.approx(truth(w))
    assert same(snapshot(model), before) and model.training
    assert found.losses_now().mean == pytest.approx(truth(Weights(model).vector()))


def test_faster_arithmetic_gives_about_the_same_losses() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 36, 50), nn.Linear(50, 10)
    )
    drawn = [parse_batch(n, (torch.randn(16, 3, 8, 8), torch.randint(10, (16,)))) for n in (0, 1)]
    exact = HeldOut(model, Weights(model), drawn, None, ALONE).losses_now()
    fast = HeldOut(model, Weights(model), drawn, None, ALONE, fast=True).losses_now()
    assert torch.equal(fast.sizes, exact.sizes)
    torch.testing.assert_close(fast.losses, exact.losses, rtol=0.02, atol=0)


def test_a_gpu_joins_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a CPU, larger passes are not faster."""
    model = tiny()
    watch = Watch(model)

    def passes(given: list[Batch]) -> int:
        watch.inputs.clear()
        HeldOut(model, Weights(model), given, None, ALONE).losses_now()
        return len(watch.inputs)

    alone = passes(batches(4, 48))
    monkeypatch.setattr(held_out_module, "device_of", lambda _: torch.device("cuda"))
    assert alone == 12 and passes(batches(4, 48)) == 2  # of 32 and 16 samples


def test_screening_uses_a_part() -> None:
    """A quarter of many samples, but no less than few."""
    w, many = Weights(tiny(seed=1)).vector(), SCREENING_PART * SCREENING_LEAST + 400
    for count, size, seen in (
        (many, 10, many // SCREENING_PART),
        (1000, 100, 256),
        (1000, 256, 256),
        (20, 2, 20),
    ):
        found = held_out(tiny(), size, count).screening_losses(w).mean
        assert found == pytest.approx(truth(w, seen, count))


def test_stages_take_turns_with_the_halves_of_many_samples() -> None:
    """The halves are every second batch of 100, and their mean is that of all."""
    model, w, count = tiny(), Weights(tiny(seed=1)).vector(), 2 * HALF
    found = held_out(model, 100, count)
    assert found.halved
    turns = [found.half(stage)(w).mean for stage in range(4)]
    assert turns[:2] == turns[2:] and turns[0] != turns[1]
    x, t = points(count)
    with Weights(model).temporarily(w), torch.no_grad():
        each = functional.cross_entropy(model(x), t, reduction="none")
    for loss, half in zip(turns, (each.view(-1, 100)[::2], each.view(-1, 100)[1::2]), strict=False):
        assert loss == pytest.approx(half.mean().item())
    assert sum(turns[:2]) / 2 == pytest.approx(found.losses(w).mean)


@pytest.mark.parametrize(("size", "count"), [(100, 2 * HALF - 100), (2 * HALF, 2 * HALF), (3, 20)])
def test_few_samples_or_a_single_batch_are_not_halved(size: int, count: int) -> None:
    w = Weights(tiny(seed=1)).vector()
    found = held_out(tiny(), size, count)
    assert not found.halved
    assert found.half(0)(w).mean == found.half(1)(w).mean == found.losses(w).mean


def test_no_gradients_are_taken_and_time_is_counted() -> None:
    model = tiny()
    watch, found = Watch(model), held_out(model)
    assert found.seconds == 0
    found.losses_now()
    once = found.seconds
    found.screening_losses(Weights(model).vector())
    assert 0 < once < found.seconds
    assert not any(watch.with_gradients)


class OneOf(Ranks):
    """A rank that gets what the others have in all."""

    def __init__(self, rank: int, size: int, others: list[Tensor] | None = None) -> None:
        self.rank, self.size, self.others = rank, size, iter(others or ())
        self.own: list[Tensor] = []

    def sum(self, tensor: Tensor) -> Tensor:
        self.own.append(tensor)
        return tensor + next(self.others, torch.zeros_like(tensor) + 1e-9)

    def gather(self, tensor: Tensor) -> Tensor:
        self.own.append(tensor)
        return torch.cat([tensor, next(self.others, torch.ones(1, dtype=torch.float64))])


def test_ranks_share_the_samples() -> None:
    """Also where there are more of them than batches."""
    model = tiny()
    w = Weights(model).vector()
    for size, ranks in ((3, 2), (3, 3), (10, 4)):
        seen: list[list[Tensor]] = []
        for rank in range(ranks):
            one = OneOf(rank, ranks)
            found = held_out(model, size, ranks=one)
            found.losses(w)
            found.accuracy_now()
            seen.append(one.own)
        losses, sizes, rights = zip(*seen, strict=True)
        assert sum(len(own) for own in losses) == 20 == sum(int(own.sum()) for own in sizes)
        assert sum(int(own[1]) for own in rights) == 20
        others = [
            torch.cat(losses[1:]),
            torch.cat(sizes[1:]),
            sum(rights[1:], start=torch.zeros(2)),
        ]
        found = held_out(model, size, ranks=OneOf(0, ranks, others))
        assert found.losses(w).mean == pytest.approx(truth(w))
        assert found.accuracy_now() == pytest.approx(held_out(model).accuracy_now())


def test_losses_are_compared_sample_by_sample() -> None:
    """A difference that is the same for all samples is sure, however the losses vary; one that the
    spread of the differences explains is not."""
    generator = torch.Generator().manual_seed(0)
    each = 10 * torch.rand(50, generator=generator, dtype=torch.float64)
    before, lower = losses(*each.tolist()), losses(*(each - 0.01).tolist())
    assert lower.surely_below(before) and not before.surely_below(lower)
    noise = torch.randn(50, generator=generator, dtype=torch.float64)
    noise -= noise.mean()
    for shift, sure in ((1.9, False), (2.1, True)):
        moved = each + noise - shift * noise.std() / 50**0.5
        assert losses(*moved.tolist()).surely_below(before) == sure
    assert not before.surely_below(before)
    assert before.surely_below(losses(math.nan, 1.0)) and not losses(math.nan).surely_below(
        losses(1.0)
    )
    assert losses(1.0).surely_below(losses(1.1)) and not losses(1.1).surely_below(losses(1.0))


def test_the_standard_error_is_that_of_the_mean() -> None:
    """Parts of other sizes count for as many samples as they have."""
    each = torch.tensor([1.0, 4.0, 2.0, 7.0], dtype=torch.float64)
    found = losses(*each.tolist())
    assert found.standard_error == pytest.approx(each.std().item() / 2)
    uneven = PartLosses(each, torch.tensor([1.0, 1.0, 1.0, 3.0], dtype=torch.float64))
    assert uneven.mean == pytest.approx(28 / 6)
    assert math.isnan(losses(1.0).standard_error)


def test_parts_are_minibatches_of_the_user_loss() -> None:
    """Whatever function of a mini-batch the loss is: pieces of 8 have four parts of two samples."""
    model, (x, t) = tiny(), points(20)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[torch.arange(len(targets)), targets].exp().prod()

    parts = HeldOut(model, Weights(model), batches(8, 20), loss, ALONE, part=2).losses_now()
    with torch.no_grad():
        expected = [loss(model(x[i : i + 2]), t[i : i + 2]).item() for i in range(0, 20, 2)]
    assert parts.losses.tolist() == pytest.approx(expected)
    assert parts.sizes.tolist() == [2.0] * 10


def test_the_accuracy_is_the_share_that_is_right() -> None:
    """Over samples, not over batches; its time is counted, too."""
    model, (x, t) = tiny(), points(20)
    found = held_out(model)
    with torch.no_grad():
        right = (model(x).argmax(1) == t).double().mean().item()
    assert found.accuracy_now() == pytest.approx(100 * right)
    assert 0 < right < 1 and found.seconds > 0


@pytest.mark.parametrize(
    ("passes", "expected"),
    [([0.3, 0.06], 0.02), ([3.0, 0.06], 1.0)],  # a short pass is repeated, a long one is not
)
def test_the_time_of_a_sample(
    passes: list[float], expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, taken = 0.0, iter(passes)

    def advance(*_: Any) -> None:
        nonlocal now
        now += next(taken)

    model = tiny()
    model.register_forward_hook(advance)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert held_out(model, size=3).sample_seconds() == pytest.approx(expected)
