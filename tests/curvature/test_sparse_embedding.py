"""Embeddings with sparse=True: their gradients are sparse tensors, which have no reshape."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita.curvature.fisher import gradient_matrix
from chita.gradual import GradualPruner
from chita.gradual.rivals.rigl import RigL
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from tests.curvature.truth import brute_force, labels
from tests.gradual.training import sgd, small_plan
from tests.support.pruning import seeded


class Words(nn.Module):
    def __init__(self, kind: Any, sparse: bool = True) -> None:
        super().__init__()
        self.embedding = kind(12, 4, sparse=sparse)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding(x)
        logits: Tensor = self.fc(hidden.mean(1) if hidden.ndim == 3 else hidden)
        return logits


def words(kind: Any, sparse: bool = True) -> nn.Module:
    return seeded(lambda: Words(kind, sparse)).double().eval()


def tokens(count: int) -> Tensor:
    return torch.randint(12, (count, 5), generator=torch.Generator().manual_seed(count))


KINDS = pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])


@KINDS
@pytest.mark.parametrize("include", ["*", None])
def test_rows_are_those_of_a_dense_embedding(kind: Any, include: Any) -> None:
    model, dense = words(kind), words(kind, sparse=False)
    x, t = tokens(12), labels(12)
    weights = Weights(model, include)
    stream = SampleStream([(x, t)])
    found = gradient_matrix(model, weights, stream, rows=6, batch=2).matrix.whole().t()
    truth, _ = brute_force(dense, Weights(dense, include), x, t, 2)
    torch.testing.assert_close(found, truth, rtol=1e-9, atol=1e-11)


@KINDS
@pytest.mark.parametrize("loss", [None, "distill"])
def test_prune(kind: Any, loss: Any) -> None:
    model, dense = words(kind), words(kind, sparse=False)
    data = [(tokens(20), labels(20)) for _ in range(2)]
    for m in (model, dense):
        chita.prune(
            m,
            data,
            sparsity=0.5,
            method="chita-bso",
            include="*.weight",
            samples=8,
            batch=2,
            ridge=0.01,
            loss=loss,
            progress=False,
        )
    for one, other in zip(model.parameters(), dense.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@KINDS
def test_gradual_pruning(kind: Any) -> None:
    model, data = words(kind), [(tokens(20), labels(20))]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = GradualPruner(
        model, optimizer, [0.5], include="*.weight", samples=5, batch=2, ridge=0.01
    )
    pruner.step(data)
    functional.cross_entropy(model(data[0][0]), data[0][1]).backward()
    optimizer.step()
    zeros = sum(int((p == 0).sum()) for p in (model.embedding.weight, model.fc.weight))
    assert zeros == 30


def test_gradients_by_which_weights_grow() -> None:
    model, dense = words(nn.Embedding), words(nn.Embedding, sparse=False)
    x, t = tokens(20), labels(20)
    found = []
    for m in (model, dense):
        sparsifier = RigL(m, sgd(m), small_plan(0.5), include="*.weight")
        m.zero_grad()
        functional.cross_entropy(m(x), t).backward()
        found.append(torch.cat(sparsifier.gradients()))
    torch.testing.assert_close(found[0], found[1])
