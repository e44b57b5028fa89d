"""What the small networks of the robustness benchmark learn, and how they are trained."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from chita import data

Samples = tuple[Tensor, Tensor]  # inputs and labels
BATCH = 1000  # samples in a batch whose size matters only for speed
SIZES = (17_000, 4_000)  # samples to learn from and to test with: those of the digits

DIGITS, MARKER, LENGTH = 10, 10, 16  # the tokens of a sequence are digits and a marker
POINTS, NOISE = 64, 0.3  # of a signal


@dataclass(frozen=True)
class Task:
    """Labelled samples, in memory."""

    train: Samples
    test: Samples


def in_batches(samples: Samples, size: int, device: torch.device) -> list[Samples]:
    """The samples in their order, so many in each batch."""
    inputs, labels = (torch.split(tensor.to(device), size) for tensor in samples)
    return list(zip(inputs, labels, strict=True))


def shuffled(samples: Samples, generator: torch.Generator) -> Samples:
    """The samples in an order that is drawn."""
    inputs, labels = samples
    order = torch.randperm(len(labels), generator=generator)
    return inputs[order], labels[order]


@cache
def digits() -> Task:
    """The slice of MNIST that ships with chita: (N, 1, 28, 28), normalised, and 10 classes."""
    splits = data.load("mnist-slice")
    train, test = (
        next(iter(data.Batches(part, len(part)))) for part in (splits.train, splits.test)
    )
    return Task(train, test)


@cache
def sequences() -> Task:
    """Digits with two markers among them, (N, 16): which follows a marker and is the larger one?"""
    return _generated(_draw_sequences)


@cache
def signals() -> Task:
    """Noisy waves of any phase, (N, 1, 64): which of six forms?"""
    return _generated(_draw_signals)


def _generated(draw: Callable[[int, torch.Generator], Samples]) -> Task:
    generator = torch.Generator().manual_seed(0)
    train, test = (draw(size, generator) for size in SIZES)
    return Task(train, test)


def _draw_sequences(count: int, generator: torch.Generator) -> Samples:
    tokens = torch.randint(DIGITS, (count, LENGTH), generator=generator)
    half = LENGTH // 2
    first = torch.randint(half - 1, (count, 1), generator=generator)
    second = half + torch.randint(half - 1, (count, 1), generator=generator)
    labels = torch.cat([tokens.gather(1, place + 1) for place in (first, second)], dim=1).amax(1)
    tokens.scatter_(1, torch.cat([first, second], dim=1), MARKER)
    return tokens, labels


def _draw_signals(count: int, generator: torch.Generator) -> Samples:
    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, generator=generator)

    time = torch.linspace(0, 1, POINTS)
    phase, periods, size = uniform(0, 1), uniform(2, 6), uniform(0.5, 1.5)
    turns = phase + periods * time  # whole numbers are whole periods
    sine = (2 * math.pi * turns).sin()
    sawtooth = 2 * turns.frac() - 1
    forms = torch.stack(
        [
            sine,
            sine.sign(),
            sawtooth,
            2 * sawtooth.abs() - 1,  # a triangle
            (2 * math.pi * (phase + periods * time**2)).sin(),  # ever faster
            (2 * math.pi * (phase + periods * (2 * time - time**2))).sin(),  # ever slower
        ]
    )
    labels = torch.randint(len(forms), (count,), generator=generator)
    noise = NOISE * torch.randn(count, POINTS, generator=generator)
    return (size * forms[labels, torch.arange(count)] + noise).unsqueeze(1), labels


BATCH, LEARNING_RATE = 64, 3e-3


def train_small(model: nn.Module, samples: Samples, epochs: int) -> None:
    """Train a network from fresh weights, in place, and leave it in eval mode."""
    generator = torch.Generator().manual_seed(0)
    _initialise(model, generator)
    model.train()
    steps = epochs * -(-len(samples[1]) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, steps)
    for _ in range(epochs):
        for inputs, labels in in_batches(shuffled(samples, generator), BATCH, torch.device("cpu")):
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    model.eval()


@torch.no_grad()
def _initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Matrices and kernels with the variance 1 / inputs, biases zero, the scales of norms one."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            inputs = parameter[0].numel()
            parameter.normal_(std=inputs**-0.5, generator=generator)
        else:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
