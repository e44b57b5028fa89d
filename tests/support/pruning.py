"""Networks and data to prune, small or embedded, and what they were before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import chita
from chita import PruneResult, data, zoo
from chita.files.checkpoint import load_checkpoint
from chita.model.weights import Weights

Pairs = list[tuple[Tensor, Tensor]]
Snapshot = dict[str, Tensor]

STAGED = ("chita++", "auto")  # take 60 stages, unless told otherwise
METHODS = ["magnitude", "chita-cd", "chita-bso", "chita++", "auto"]


class Again:
    """Batches that can be iterated again and again, and are read in their own order."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def mlpnet() -> nn.Module:
    """The trained MLPNet of the package."""
    network = zoo.get("mlpnet")
    assert network.embedded is not None
    model = network.build()
    load_checkpoint(model, network.embedded.checkpoint)
    return model


def digits(samples: int, size: int = 100) -> Pairs:
    """Calibration images of the embedded slice of MNIST."""
    return list(data.Batches(data.load("mnist-slice").train, size, limit=samples))


def unseen_digits() -> Pairs:
    """Test images of the same slice."""
    return list(data.Batches(data.load("mnist-slice").test, 1000))


def seeded(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """build(), its random weights drawn from `seed`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def tiny(seed: int = 0) -> nn.Sequential:
    """6-8-3 in float64: 72 prunable weights."""
    layers = seeded(lambda: nn.Linear(6, 8), seed), nn.Tanh(), seeded(lambda: nn.Linear(8, 3), seed)
    return nn.Sequential(*layers).double()


def numbers(samples: int, *shape: int, seed: int = 0) -> Tensor:
    """Normal float64 numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, *shape, generator=generator, dtype=torch.float64)


def points(samples: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs (samples, 6) in float64 and three classes for `tiny`."""
    inputs = numbers(samples, 6, seed=seed)
    return inputs, (inputs[:, :3] + inputs[:, 3:]).argmax(1)


def cut(pair: tuple[Tensor, Tensor], size: int) -> Pairs:
    """The samples of `pair` in batches of `size`."""
    return list(zip(pair[0].split(size), pair[1].split(size), strict=True))


def snapshot(model: nn.Module) -> Snapshot:
    """A copy of every parameter and buffer."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor.detach().clone() for name, tensor in named}


def same(left: Snapshot, right: Snapshot) -> bool:
    """Equal bit for bit, NaN included."""
    return left.keys() == right.keys() and all(
        torch.equal(left[name].nan_to_num(nan=1.5), right[name].nan_to_num(nan=1.5))
        and torch.equal(left[name].isnan(), right[name].isnan())
        for name in left
    )


def prune_quietly(model: nn.Module, batches: Any, **keywords: Any) -> PruneResult:
    """Quietly, by CHITA++ on all of 24 samples unless told otherwise."""
    defaults = {"sparsity": 0.75, "batch": 2, "ridge": 0.01, "progress": False}
    arguments = {"method": "chita++", **defaults, **keywords}
    if arguments["method"] in STAGED:
        arguments.setdefault("stages", 4)
    return chita.prune(model, batches, **{"recover": False, **arguments})


class Watch:
    """Notes, at each forward pass, the weights, the inputs and whether gradients are taken."""

    def __init__(self, model: nn.Module) -> None:
        self.weights: list[Tensor] = []
        self.inputs: list[Tensor] = []
        self.with_gradients: list[bool] = []
        model.register_forward_pre_hook(self.note)

    def note(self, model: nn.Module, args: tuple[Tensor]) -> None:
        self.weights.append(Weights(model).vector())
        self.inputs.append(args[0].detach().clone())
        self.with_gradients.append(torch.is_grad_enabled())

    def stages(self) -> list[Tensor]:
        """The weights that gradients were taken at, one vector for each stage."""
        seen: list[Tensor] = []
        for weights, gradients in zip(self.weights, self.with_gradients, strict=True):
            if gradients and not (seen and torch.equal(seen[-1], weights)):
                seen.append(weights)
        return seen
