"""The size of a chunk follows what autograd keeps of a row."""

from __future__ import annotations

import weakref

import torch
from torch import nn

from chita.curvature.gradient_rows import CHUNK_BYTES, row_bytes, rows_at_once, saved_tensors
from chita.model.hooks import owners
from chita.model.weights import Weights

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
    assert rows_at_once(1 << 20, CPU) == CHUNK_BYTES >> 20
    assert rows_at_once(2 * CHUNK_BYTES, CPU) == 1


def test_layers_without_a_rule_make_all_their_gradients_at_once() -> None:
    fast = nn.Linear(1000, 1000)
    assert row_bytes(owners(fast, Weights(fast)), {1: 5, 2: 6}) == 11
    other = nn.Embedding(1 << 10, 1 << 10)
    assert row_bytes(owners(other, Weights(other, include="weight")), {1: 5}) == 5 + (1 << 22)


class Graphs(nn.Module):
    """A layer whose activation saves its own output for the backward pass, and refers to it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.output: weakref.ref[torch.Tensor] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = torch.tanh(self.layer(x))
        self.output = weakref.ref(output)
        return output.square()


def test_no_graph_stays_alive() -> None:
    model = Graphs()
    assert saved_bytes(model, torch.zeros(2, 3)) > 0
    assert model.output is not None and model.output() is None
