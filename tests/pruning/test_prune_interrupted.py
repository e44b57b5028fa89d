"""An interruption, at any moment, leaves the weights of the last finished stage."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita.model.weights import Weights
from tests.support.pruning import cut, points, tiny

pytestmark = pytest.mark.slow


STAGES: dict[str, Any] = {"sparsity": 0.9, "batch": 2, "stages": 4, "progress": False}
KEYWORDS: dict[str, Any] = {"method": "chita++", **STAGES}


class Undisturbed:
    """Counts moments of a run (forward passes, losses or assignments) and keeps the weights of the
    last finished stage at each: those that the stage under way takes its gradients at."""

    def __init__(self, model: nn.Module) -> None:
        self.moments: list[Tensor] = []
        self.weights = Weights(model)
        self.finished = self.weights.vector()
        model.register_forward_pre_hook(self.see_forward)

    def see_forward(self, *_: Any) -> None:
        if torch.is_grad_enabled():
            self.finished = self.weights.vector()

    def moment(self) -> None:
        self.moments.append(self.finished)


def network() -> nn.Sequential:
    model = tiny().train()
    model[1].eval()
    model[2].weight.requires_grad_(False)
    return model


def moments_to_try(count: int) -> list[int]:
    """The first and last few, and some between."""
    ends = {0, 1, 2, count - 3, count - 2, count - 1}
    return sorted(ends | set(range(0, count, max(1, count // 12))))


def check(model: nn.Module, expected: Tensor) -> None:
    assert torch.equal(Weights(model).vector(), expected)
    assert [module.training for module in model.modules()] == [True, True, False, True]
    assert [p.requires_grad for p in model.parameters()] == [True, True, False, True]
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("ridge", [0.01, "auto"])
def test_in_the_forward_pass(ridge: Any) -> None:
    batches = cut(points(40), 7)
    model = network()
    run = Undisturbed(model)
    model.register_forward_pre_hook(lambda *_: run.moment())
    chita.prune(model, batches, ridge=ridge, **{"recover": False, **KEYWORDS})
    # At last the network is measured, if samples are held out, and multiply-adds are counted.
    after = 2 if ridge == "auto" else 1
    finished = [*run.moments[:-after], *[Weights(model).vector()] * after]
    assert sum(not torch.equal(a, b) for a, b in pairwise(finished)) == 4
    for t in moments_to_try(len(finished)):
        model, left = network(), [t]

        def interrupt(*_: Any, left: list[int] = left) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1

        model[2].register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            chita.prune(model, batches, ridge=ridge, **{"recover": False, **KEYWORDS})
        check(model, finished[t])


@pytest.mark.parametrize("ridge", [0.01, "auto"])
@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError])
def test_in_the_loss(ridge: Any, failure: type[BaseException]) -> None:
    """Also if it fails by itself."""
    batches = cut(points(40), 7)
    model = network()
    run = Undisturbed(model)

    class Loss:
        """Cannot be vectorised, so that it is called for each mini-batch."""

        left = 10**9

        def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
            run.moment()
            if not self.left:
                raise failure
            self.left -= 1
            value = functional.cross_entropy(outputs, targets)
            assert value.item() < 100
            return value

    chita.prune(model, batches, loss=Loss(), ridge=ridge, **{"recover": False, **KEYWORDS})
    # At last the network is measured: two mini-batches, after torch has failed to vectorise them.
    after = 3 if ridge == "auto" else 0
    finished = run.moments[: len(run.moments) - after] + [Weights(model).vector()] * after
    for t in moments_to_try(len(finished)):
        model, loss = network(), Loss()
        loss.left = t
        with pytest.raises(failure):
            chita.prune(model, batches, loss=loss, ridge=ridge, **{"recover": False, **KEYWORDS})
        check(model, finished[t])


@pytest.mark.parametrize("method", ["magnitude", "chita-cd", "chita++", "auto"])
@pytest.mark.parametrize("ridge", [0.01, "auto"])
def test_while_weights_are_written(
    ridge: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, assign = cut(points(40), 7), Weights.assign
    finished: list[Tensor] = []
    last = Weights(network()).vector()
    replace = Weights.replace

    def noting_replace(self: Weights, vector: Tensor) -> None:
        nonlocal last
        replace(self, vector)
        last = self.vector()

    def noting_assign(self: Weights, vector: Tensor) -> None:
        finished.append(last)
        assign(self, vector)

    with monkeypatch.context() as patched:
        patched.setattr(Weights, "replace", noting_replace)
        patched.setattr(Weights, "assign", noting_assign)
        chita.prune(network(), batches, ridge=ridge, method=method, **{"recover": False, **STAGES})
    assert len(finished) >= 4
    assert not torch.equal(finished[0], finished[-1])

    for t in moments_to_try(len(finished)):
        left = t

        def half(self: Weights, vector: Tensor) -> None:
            nonlocal left
            left -= 1
            if left != -1:
                return assign(self, vector)
            with torch.no_grad():
                self.entries[0].parameter.copy_(vector[self.entries[0].span].view(8, 6))
            raise KeyboardInterrupt

        model = network()
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Weights, "assign", half)
            chita.prune(model, batches, ridge=ridge, method=method, **{"recover": False, **STAGES})
        check(model, finished[t])


def test_a_copy_is_all_that_is_lost() -> None:
    model = network()
    before = Weights(model).vector()
    calls = 0

    def interrupt(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise KeyboardInterrupt
        return functional.cross_entropy(outputs, targets)

    with pytest.raises(KeyboardInterrupt):
        chita.prune(
            model, [points(24)], loss=interrupt, inplace=False, **{"recover": False, **KEYWORDS}
        )
    check(model, before)
