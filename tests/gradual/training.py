"""A training small enough for tests: an MLP of two or three layers on random clusters."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from chita.gradual.schedules import polynomial
from chita.gradual.sparsifier import Sparsifier, TrainingPlan

SIZES = [8 * 32, 32 * 16, 16 * 4]


def small_model(seed: int = 0) -> nn.Module:
    """Three Linear layers of SIZES."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)
        )


def small_plan(sparsity: float = 0.8, *, epochs: int = 8, steps: int = 10) -> TrainingPlan:
    """The target is reached after three quarters of the epochs."""
    schedule = polynomial(sparsity, steps=4, every=epochs // 4)
    return TrainingPlan(sparsity, epochs, steps, schedule, seed=0)


def sgd(model: nn.Module, rate: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)


def clusters(count: int = 320) -> tuple[Tensor, Tensor]:
    """Points about 4 random centres of R^8, and which they belong to."""
    generator = torch.Generator().manual_seed(7)
    centres = torch.randn(4, 8, generator=generator)
    labels = torch.randint(4, (count,), generator=generator)
    return centres[labels] + 0.3 * torch.randn(count, 8, generator=generator), labels


def run(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    sparsifier: Sparsifier,
    plan: TrainingPlan,
    *,
    begin: int = 0,
    end: int | None = None,
) -> None:
    """The epochs from `begin` to before `end` of the training that a sparsifier is a guest in.

    The learning rate falls on a straight line to zero.
    """
    inputs, labels = clusters()
    model.train()
    for epoch in range(begin, plan.epochs if end is None else end):
        sparsifier.begin_epoch(epoch, [(inputs, labels)])
        for step, batch in enumerate(torch.arange(len(inputs)).chunk(plan.steps_per_epoch)):
            for group in optimizer.param_groups:
                done = (epoch * plan.steps_per_epoch + step) / plan.steps
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * (1 - done)
            outputs = functional_call(model, sparsifier.effective(), (inputs[batch],))
            loss = F.cross_entropy(outputs, labels[batch])
            penalty = sparsifier.penalty()
            optimizer.zero_grad()
            (loss if penalty is None else loss + penalty).backward()
            optimizer.step()
            sparsifier.after_step()


def take_in(optimizer: torch.optim.Optimizer, sparsifier: Sparsifier) -> None:
    """The sparsifier's own parameters into the optimizer."""
    for group in sparsifier.groups():
        optimizer.add_param_group(group)


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """The share of the points that are told right."""
    inputs, labels = clusters()
    model.eval()
    return float((model(inputs).argmax(1) == labels).float().mean())


def zeros(model: nn.Module) -> list[int]:
    """How many weights of each layer are exactly zero."""
    return [int((m.weight == 0).sum()) for m in model if isinstance(m, nn.Linear)]
