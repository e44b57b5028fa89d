"""Short runs of method="auto", and the truth about what they leave."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita import PruneResult
from chita.model.samples.stream import SampleStream
from chita.pruning.calibration import divide_samples
from chita.pruning.config import PruneConfig

Data = tuple[Tensor, Tensor]


def prune(model: nn.Module, batches: Any, **keywords: Any) -> PruneResult:
    return chita.prune(
        model, batches, **{"stages": 5, "progress": False, "recover": False, **keywords}
    )


def held_out_parts(batches: Any, **keywords: Any) -> tuple[Data, Data]:
    """The pairs that a run with these arguments chooses by, and those that it measures on."""
    config = PruneConfig(**{"sparsity": 0.5, "method": "auto", "recover": False, **keywords})
    found = divide_samples(SampleStream(batches, config.seed), config)
    inputs, targets = (
        [
            torch.cat([get(batch.content) for batch in part])
            for part in (found.held_out, found.measured)
        ]
        for get in (lambda content: content[0][0], lambda content: content[1])
    )
    return (inputs[0], targets[0]), (inputs[1], targets[1])


def loss_of(model: nn.Module, data: Data) -> float:
    with torch.no_grad():
        return functional.cross_entropy(model.eval()(data[0]), data[1]).item()


def accuracy_of(model: nn.Module, data: Data) -> float:
    with torch.no_grad():
        return 100 * (model.eval()(data[0]).argmax(1) == data[1]).double().mean().item()


def fit(model: nn.Module, data: Data) -> None:
    """Train it until every weight counts."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        functional.cross_entropy(model(data[0]), data[1]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
