"""The true loss on held-out samples."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.batch import Batch, parse_batch
from chita.held_out import HALF, SCOUT, SCOUT_LEAST, HeldOut
from chita.ranks import ALONE, Ranks
from chita.weights import Weights

from .pruning import Watch, cut, points, same, snapshot, tiny


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
    assert found.loss(w) == pytest.approx(truth(w))
    assert same(snapshot(model), before) and model.training
    assert found.loss_now() == pytest.approx(truth(Weights(model).vector()))


def test_a_scout_looks_at_a_part() -> None:
    """A quarter of many samples, but no less than few, and whole batches."""
    w, many = Weights(tiny(seed=1)).vector(), SCOUT * SCOUT_LEAST + 400
    for count, size, seen in (
        (many, 10, many // SCOUT + 4),  # 356 samples: 36 batches of 10
        (1000, 100, 300),
        (1000, 256, 256),
        (20, 2, 20),
    ):
        found = held_out(tiny(), size, count).scout(w)
        assert found == pytest.approx(truth(w, seen, count))


def test_stages_take_turns_with_the_halves_of_many_samples() -> None:
    """The halves are every second batch of 100, and their mean is that of all."""
    model, w, count = tiny(), Weights(tiny(seed=1)).vector(), 2 * HALF
    found = held_out(model, 100, count)
    assert found.halved
    losses = [found.turn(stage)(w) for stage in range(4)]
    assert losses[:2] == losses[2:] and losses[0] != losses[1]
    x, t = points(count)
    with Weights(model).lent(w), torch.no_grad():
        each = functional.cross_entropy(model(x), t, reduction="none")
    for loss, half in zip(
        losses, (each.view(-1, 100)[::2], each.view(-1, 100)[1::2]), strict=False
    ):
        assert loss == pytest.approx(half.mean().item())
    assert sum(losses[:2]) / 2 == pytest.approx(found.loss(w))


@pytest.mark.parametrize(("size", "count"), [(100, 2 * HALF - 100), (2 * HALF, 2 * HALF), (3, 20)])
def test_few_samples_or_a_single_batch_are_not_halved(size: int, count: int) -> None:
    w = Weights(tiny(seed=1)).vector()
    found = held_out(tiny(), size, count)
    assert not found.halved
    assert found.turn(0)(w) == found.turn(1)(w) == found.loss(w)


def test_no_gradients_are_taken_and_time_is_counted() -> None:
    model = tiny()
    watch, found = Watch(model), held_out(model)
    assert found.seconds == 0
    found.loss_now()
    once = found.seconds
    found.scout(Weights(model).vector())
    assert 0 < once < found.seconds
    assert not any(watch.with_gradients)


class OneOf(Ranks):
    """A rank that is told what the others have in all."""

    def __init__(self, rank: int, size: int, others: Tensor) -> None:
        self.rank, self.size, self.others = rank, size, others

    def sum(self, tensor: Tensor) -> Tensor:
        self.own = tensor
        return tensor + self.others


def test_ranks_share_the_samples() -> None:
    """Also where there are more of them than batches."""
    model, nothing = tiny(), torch.zeros(2, dtype=torch.float64)
    w = Weights(model).vector()
    for size, ranks in ((3, 2), (3, 3), (10, 4)):
        losses, rights = [], []
        for rank in range(ranks):
            one = OneOf(rank, ranks, nothing + 1e-9)
            found = held_out(model, size, ranks=one)
            found.loss(w)
            losses.append(one.own)
            found.accuracy_now()
            rights.append(one.own)
        for parts in (losses, rights):
            assert sum(int(part[1]) for part in parts) == 20
        first = OneOf(0, ranks, sum(losses[1:], start=nothing))
        assert held_out(model, size, ranks=first).loss(w) == pytest.approx(truth(w))
        first = OneOf(0, ranks, sum(rights[1:], start=nothing))
        found = held_out(model, size, ranks=first)
        assert found.accuracy_now() == held_out(model).accuracy_now()


def test_the_accuracy_is_the_share_that_is_right() -> None:
    """Over samples, not over batches; its time is counted, too."""
    model, (x, t) = tiny(), points(20)
    found = held_out(model)
    with torch.no_grad():
        right = (model(x).argmax(1) == t).double().mean().item()
    assert found.accuracy_now() == pytest.approx(100 * right)
    assert 0 < right < 1 and found.seconds > 0
