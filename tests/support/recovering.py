"""Small networks to recover, their samples, and the tasks of their dense versions."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

import chita
from chita.model.distill import DenseNetwork
from chita.model.samples.batch import Batch
from chita.model.seeds import generator_of
from chita.model.weights import Weights
from chita.pruning.recovery.objective import RecoveryTask, distillation
from chita.pruning.recovery.result import RecoverResult
from chita.solver.ranks import ALONE
from tests.support.pruning import numbers, points, seeded

CPU = torch.device("cpu")


def normalised(seed: int = 0) -> Any:
    """6-8-3 in float64 with batch norm and dropout: 72 prunable weights."""
    return seeded(
        lambda: nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3)
        ).double(),
        seed,
    )


def halved(model: nn.Module) -> Any:
    """A copy with half of its weights, chosen at random."""
    pruned = copy.deepcopy(model)
    weights = Weights(pruned)
    w = weights.vector()
    weights.replace(w * (torch.rand(len(w), generator=generator_of(1)) < 0.5))
    return pruned


def batch_of(inputs: Tensor, targets: Any = ()) -> Batch:
    return Batch(((inputs,), targets), len(inputs))


def task_of(
    dense: nn.Module, inputs: Tensor | None = None, *, squares: bool = False, at_once: int = 64
) -> RecoveryTask:
    """The distillation of a dense network."""
    inputs = points(160)[0] if inputs is None else inputs
    first = batch_of(inputs[:20])
    return distillation(
        DenseNetwork(dense, first, 0, squares=squares),
        [batch_of(inputs)],
        first,
        at_once=at_once,
        place=inputs.device,
    )


def draw(task: RecoveryTask, count: int, key: int = 0) -> list[Batch]:
    """The batches of some steps."""
    return list(task.draw(generator_of(key), ALONE, count))


def parts(batch: Batch) -> tuple[Any, Any]:
    """The inputs and the targets of a batch."""
    assert isinstance(batch.content, tuple)
    return batch.content


def kept_of(model: nn.Module) -> dict[nn.Parameter, Tensor]:
    """The masks of the weights that are not zero."""
    return {weight.parameter: weight.parameter.detach() != 0 for weight in Weights(model)}


class Answer:
    """What a language model gives."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class Tokens(nn.Module):
    """A tiny tagger of padded tokens, by keywords."""

    def __init__(self, tokens: int = 10, classes: int = 4) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(tokens, 6), nn.Linear(6, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Answer:
        return Answer(self.head(self.embedding(input_ids).tanh()))


def padded(samples: int, length: int = 7) -> dict[str, Tensor]:
    """Token ids and the mask of a batch; a padded position has token 0."""
    lengths = 1 + numbers(samples, 1).abs().mul(3).long().clamp_max(length - 1)
    mask = (torch.arange(length) < lengths).long()
    tokens = numbers(samples, length, seed=1).mul(100).long().remainder(9) + 1
    return {"input_ids": tokens * mask, "attention_mask": mask}


class Tied(nn.Module):
    """Two layers share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.two(self.one(x).tanh()).tanh())
        return out


def recover(model: nn.Module, batches: Any, **keywords: Any) -> RecoverResult:
    return chita.recover(model, batches, **{"budget": "20 steps", "progress": False, **keywords})
