import math
from itertools import pairwise

import pytest
import torch

from chita.errors import ChitaError
from chita.gradual.rivals.rigl import RigL, exchange
from chita.solver.constraints.layer_counts import erk_counts
from tests.gradual.training import SIZES, accuracy, run, sgd, small_model, small_plan, zeros
from tests.support.messages import naming


def test_the_smallest_are_dropped_and_the_largest_gradients_grow() -> None:
    kept = torch.tensor([True, True, True, True, False, False, False])
    magnitude = torch.tensor([0.3, 0.1, 0.5, 0.2, 0.0, 0.0, 0.0])
    gradient = torch.tensor([9.0, 0.5, 9.0, 0.1, 0.3, 0.7, 0.2])
    # 1 and 3 are dropped; of 1, 3, 4, 5, 6 the gradients of 5 and 1 are largest
    after = exchange(kept, magnitude, gradient, 2)
    assert after.tolist() == [True, True, True, False, False, True, False]
    assert exchange(kept, magnitude, gradient, 0).tolist() == kept.tolist()


def test_counts_of_erk_stay_while_weights_are_exchanged() -> None:
    model, plan = small_model(), small_plan(0.8)
    optimizer = sgd(model)
    rigl = RigL(model, optimizer, plan, every=7)
    counts = erk_counts([(32, 8), (16, 32), (4, 16)], int(0.2 * sum(SIZES)))
    assert rigl.counts == counts
    masks = [torch.cat(rigl.kept)]
    for epoch in range(plan.epochs):
        run(model, optimizer, rigl, plan, begin=epoch, end=epoch + 1)
        assert [int(kept.sum()) for kept in rigl.kept] == counts
        masks.append(torch.cat(rigl.kept))
        for kept, weight in zip(rigl.kept, rigl.weights, strict=True):
            assert (weight.parameter.flatten()[~kept] == 0).all()
    changed = [bool((a != b).any()) for a, b in pairwise(masks)]
    assert all(changed[:5])
    assert not any(changed[6:])  # three quarters of the training are over
    rigl.finalize()
    assert sum(zeros(model)) >= sum(SIZES) - sum(counts)
    assert accuracy(model) > 0.8


def test_an_exchange_in_training_is_the_paper_s() -> None:
    """Against a loop over the weights, at the first exchange."""
    model, plan = small_model(), small_plan(0.8)
    optimizer = sgd(model)
    rigl = RigL(model, optimizer, plan, every=10)
    run(model, optimizer, rigl, plan, end=1)  # it ends with the exchange
    again = small_model()
    optimizer = sgd(again)
    twin = RigL(again, optimizer, plan, every=1000)
    run(again, optimizer, twin, plan, end=1)  # the same without it
    for kept, before, weight, count in zip(
        rigl.kept, twin.kept, twin.weights, rigl.counts, strict=True
    ):
        w, g = weight.parameter.flatten(), weight.parameter.grad.flatten()
        number = int(0.15 * (1 + math.cos(math.pi * 10 / 60)) * count)
        active = before.nonzero().flatten().tolist()
        gone = sorted(active, key=lambda i: abs(w[i]))[:number]
        rest = [i for i in range(len(w)) if i not in set(active) - set(gone)]
        grown = sorted(rest, key=lambda i: -abs(g[i]))[:number]
        expected = (set(active) - set(gone)) | set(grown)
        assert number > 0
        assert set(kept.nonzero().flatten().tolist()) == expected
    new = torch.cat(rigl.kept) & ~torch.cat(twin.kept)
    assert (rigl.weights.vector()[new] == 0).all()  # grown from zero ...
    momenta = [optimizer.state[w.parameter]["momentum_buffer"] for w in twin.weights]
    assert (torch.cat([m.flatten() for m in momenta])[new] == 0).all()  # ... and without momentum


def test_the_share_falls_on_a_cosine() -> None:
    model = small_model()
    rigl = RigL(model, sgd(model), small_plan(), share=0.4)
    assert rigl.share_at(0) == pytest.approx(0.4)
    assert rigl.share_at(30) == pytest.approx(0.2)
    assert rigl.share_at(60) == pytest.approx(0.0)


def test_gradients_that_are_gone_are_told() -> None:
    model, plan = small_model(), small_plan()
    rigl = RigL(model, sgd(model), plan, every=1)
    with pytest.raises(
        ChitaError, match=naming("0.weight, 2.weight, 4.weight", "gradients", "include")
    ):
        rigl.after_step()
