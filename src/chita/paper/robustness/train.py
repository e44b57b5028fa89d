"""How the small networks of `chita bench any` are trained: AdamW on a cosine schedule, on the CPU.

The same bits come out each time, in a minute at most.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from chita.paper.robustness.tasks import Samples, in_batches, shuffled

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
