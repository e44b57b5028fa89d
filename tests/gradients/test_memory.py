"""The size of a chunk follows what autograd keeps of a row."""

from __future__ import annotations

import torch
from torch import nn

from chita.gradients.capture import owners
from chita.gradients.memory import CHUNK_BYTES, rows_at_once, saved_tensors
from chita.weights import Weights

CPU = torch.device("cpu")


def saved_bytes(model: nn.Module, x: torch.Tensor) -> int:
    with saved_tensors(model) as saved:
        model(x).sum()
    return sum(saved.values())


def test_activations_count_and_weights_do_not() -> None:
    model = nn.Sequential(nn.Linear(100, 1000), nn.ReLU(), nn.Linear(1000, 10))
    # The input, and the ReLU's output that is the second layer's input as well.
    assert saved_bytes(model, torch.zeros(2, 100)) == 2 * (100 + 1000) * 4


def test_a_part_of_a_large_batch_counts_as_a_part() -> None:
    x = torch.zeros(5000, 100)
    assert saved_bytes(nn.Linear(100, 3), x[:2]) == 2 * 100 * 4


def test_rows_at_once() -> None:
    fast = nn.Linear(1000, 1000)
    assert rows_at_once(owners(fast, Weights(fast)), {1: 1 << 20}, CPU) == CHUNK_BYTES >> 20
    assert rows_at_once(owners(fast, Weights(fast)), {1: 2 * CHUNK_BYTES}, CPU) == 1
    # Layers without a rule make all their gradients at once.
    other = nn.Embedding(1 << 10, 1 << 10)
    found = owners(other, Weights(other, include="weight"))
    assert rows_at_once(found, {1: 0}, CPU) == CHUNK_BYTES >> 22
