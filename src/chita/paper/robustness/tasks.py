"""The tasks of the small networks of `chita bench robustness`, and their training."""

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
BATCH = 1000  # the size of a batch where it affects only speed
SIZES = (17_000, 4_000)  # training and test samples, as many as the digits have

DIGITS, MARKER, LENGTH = 10, 10, 16  # the tokens of a sequence are digits or a marker
POINTS, NOISE = 64, 0.3  # the length of a signal and the standard deviation of its noise


@dataclass(frozen=True)
class Task:
    """Labelled training and test samples, in memory."""

    train: Samples
    test: Samples


def in_batches(samples: Samples, size: int, device: torch.device) -> list[Samples]:
    """Return the samples in batches of the given size, in their order."""
    inputs, labels = (torch.split(tensor.to(device), size) for tensor in samples)
    return list(zip(inputs, labels, strict=True))


def shuffled(samples: Samples, generator: torch.Generator) -> Samples:
    """Return the samples in random order."""
    inputs, labels = samples
    order = torch.randperm(len(labels), generator=generator)
    return inputs[order], labels[order]


@cache
def digits() -> Task:
    """Return the slice of MNIST that ships with chita: normalised (N, 1, 28, 28), 10 classes."""
    splits = data.load("mnist-slice")
    train, test = (
        next(iter(data.Batches(part, len(part)))) for part in (splits.train, splits.test)
    )
    return Task(train, test)


@cache
def sequences() -> Task:
    """Return sequences of digits with two markers, (N, 16).

    The label is the larger of the two digits that follow a marker.
    """
    return _generated(_draw_sequences)


@cache
def signals() -> Task:
    """Return noisy waves with random phases, (N, 1, 64); the label is one of six waveforms."""
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
    turns = phase + periods * time  # the phase in periods
    sine = (2 * math.pi * turns).sin()
    sawtooth = 2 * turns.frac() - 1
    forms = torch.stack(
        [
            sine,
            sine.sign(),
            sawtooth,
            2 * sawtooth.abs() - 1,  # triangle
            (2 * math.pi * (phase + periods * time**2)).sin(),  # increasing frequency
            (2 * math.pi * (phase + periods * (2 * time - time**2))).sin(),  # decreasing frequency
        ]
    )
    labels = torch.randint(len(forms), (count,), generator=generator)
    noise = NOISE * torch.randn(count, POINTS, generator=generator)
    return (size * forms[labels, torch.arange(count)] + noise).unsqueeze(1), labels


TRAINING_BATCH, LEARNING_RATE = 64, 3e-3


def train_small(model: nn.Module, samples: Samples, epochs: int) -> None:
    """Train a network from fresh weights, in place, and leave it in eval mode."""
    generator = torch.Generator().manual_seed(0)
    _initialise(model, generator)
    model.train()
    steps = epochs * -(-len(samples[1]) // TRAINING_BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, steps)
    for _ in range(epochs):
        for inputs, labels in in_batches(
            shuffled(samples, generator), TRAINING_BATCH, torch.device("cpu")
        ):
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    model.eval()


@torch.no_grad()
def _initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Draw matrices and kernels with variance 1 / inputs; set biases to 0 and norm scales to 1."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            inputs = parameter[0].numel()
            parameter.normal_(std=inputs**-0.5, generator=generator)
        else:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
