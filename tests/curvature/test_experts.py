"""Rows of a mixture of experts whose capacity depends on the number of samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from chita.curvature.fisher import gradient_matrix
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from tests.curvature.truth import brute_force

ROWS = 100


class Experts(nn.Module):
    """Four experts, each of which serves a limited number of samples of a batch."""

    def __init__(self, factor: float, least: int) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(8, 4), nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.factor, self.least = factor, least

    def forward(self, x: Tensor) -> Tensor:
        shares = self.gate(x).softmax(-1)
        chosen = shares.argmax(-1)
        capacity = max(self.least, math.ceil(self.factor * len(x) / 4))
        out = x
        for number, expert in enumerate(self.experts):
            mine = chosen == number
            served = (mine & (mine.cumsum(0) <= capacity))[:, None]
            out = out + served * shares[:, number : number + 1] * torch.relu(expert(x))
        found: Tensor = self.head(out)
        return found


@pytest.mark.parametrize(("factor", "least", "batch"), [(2.0, 1, 4), (1.25, 4, 1), (1.0, 1, 2)])
def test_rows_are_those_of_each_mini_batch_alone(factor: float, least: int, batch: int) -> None:
    for seed in range(6):
        torch.manual_seed(seed)
        model = Experts(factor, least).double().eval()
        x = torch.randn(ROWS * batch, 8, dtype=torch.float64)
        t, weights = x[:, :3].argmax(1), Weights(model)
        found = gradient_matrix(model, weights, SampleStream([(x, t)]), rows=ROWS, batch=batch)
        truth, _ = brute_force(model, weights, x, t, batch)
        torch.testing.assert_close(found.matrix.whole().t(), truth, rtol=1e-9, atol=1e-11)
