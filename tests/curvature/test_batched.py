"""The fast way on whole models: weights used twice, in-place operations, losses, memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.curvature.fisher import gradient_matrix
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from tests.curvature.truth import assert_right, brute_force, labels, normal


class Twice(nn.Module):
    """One module called twice, and a weight that two modules share."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Linear(4, 4)
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.again(x).tanh()).tanh()
        logits: Tensor = self.fc(self.second(self.first(x).tanh()))
        return logits


class Tied(nn.Module):
    """Embedding and output layer with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.fc = nn.Linear(5, 7, bias=False)
        self.fc.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.embedding(tokens).mean(1).tanh())
        return logits


@pytest.mark.parametrize("batch", [1, 3])
def test_contributions_to_one_weight_add(batch: int) -> None:
    found = assert_right(Twice(), normal(9, 4), labels(9), batch=batch)
    assert found.matrix.p == 20 + 16 + 15
    assert_right(Tied(), labels(36, 7).view(12, 3), labels(12, 7), batch=batch)


@pytest.mark.parametrize("rows_in_chunk", [1, 4, 7, 1000])
def test_rows_not_a_multiple_of_the_chunk(
    monkeypatch: pytest.MonkeyPatch, rows_in_chunk: int
) -> None:
    monkeypatch.setattr("chita.curvature.fisher.rows_at_once", lambda *_: rows_in_chunk)
    assert_right(Twice(), normal(20, 4), labels(20), batch=2)


def test_the_stream_is_cut_anew() -> None:
    model, x, t = Twice().double(), normal(12, 4), labels(12)
    weights = Weights(model)
    stream = SampleStream(list(zip(x.split(5), t.split(5), strict=True)))
    first = gradient_matrix(model, weights, stream, rows=3, batch=3)
    second = gradient_matrix(model, weights, stream, rows=2, batch=3)  # wraps round
    order = [9, 10, 11, 0, 1, 2]
    for found, some in ((first, list(range(9))), (second, order)):
        truth, _ = brute_force(model, weights, x[some], t[some], 3)
        torch.testing.assert_close(found.matrix.whole().t(), truth)


def test_in_place_activations() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 4, 3),
        nn.Hardtanh(inplace=True),
        nn.Flatten(2),
        nn.Linear(9, 5),
        nn.ELU(inplace=True),
        nn.Flatten(),
        nn.Linear(20, 3),
    )
    assert_right(model, normal(8, 3, 7, 7), labels(8), batch=2)


def test_a_weight_without_influence_has_a_zero_column() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 3)
            self.called = nn.Linear(4, 3)
            self.unused = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.called(x)
            logits: Tensor = self.fc(x)
            return logits

    found = assert_right(Spare(), normal(6, 4), labels(6), include="*weight")
    assert found.matrix.whole()[:12].abs().sum() > 0
    assert found.matrix.whole()[12:].abs().sum() == 0


def not_vectorisable(outputs: Tensor, targets: Tensor) -> Tensor:
    scale = 2.0 if outputs.sum().item() > 0 else 3.0
    return functional.cross_entropy(outputs, targets) * scale


def vectorisable(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square().mean() + outputs.logsumexp(1).mean()


def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    """Its mean is over the weights of the mini-batch's own classes."""
    return functional.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 2.0, 5.0]).double())


@pytest.mark.parametrize("loss", [not_vectorisable, vectorisable, weighted])
@pytest.mark.parametrize("batch", [1, 3])
def test_custom_losses(loss: Any, batch: int) -> None:
    assert_right(Twice(), normal(12, 4), labels(12), batch=batch, loss=loss)


def test_nested_outputs_and_inputs() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(4, 3), nn.Linear(5, 3)

        def forward(self, a: Tensor, b: Tensor) -> dict[str, Any]:
            return {"sum": self.left(a) + self.right(b), "parts": (self.left(a), self.right(b))}

    def loss(outputs: dict[str, Any], targets: tuple[Tensor, Tensor]) -> Tensor:
        first = functional.cross_entropy(outputs["sum"], targets[0])
        return first + (outputs["parts"][1] * targets[1]).square().mean()

    model = Two().double()
    weights = Weights(model)
    a, b, t, u = normal(8, 4), normal(8, 5), labels(8), normal(8, 3)
    stream = SampleStream([((a, b), (t, u))])
    found = gradient_matrix(model, weights, stream, rows=4, batch=2, loss=loss)
    for r in range(4):
        part = slice(2 * r, 2 * r + 2)
        value = loss(model(a[part], b[part]), (t[part], u[part]))
        row = torch.autograd.grad(value, [model.left.weight, model.right.weight])
        expected = torch.cat([gradient.reshape(-1) for gradient in row])
        torch.testing.assert_close(found.matrix.whole()[:, r], expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_type_of_the_matrix(dtype: torch.dtype) -> None:
    model = Twice().to(dtype)
    weights = Weights(model)
    x, t = normal(6, 4).to(dtype), labels(6)
    found = gradient_matrix(model, weights, SampleStream([(x, t)]), rows=6, batch=1)
    assert found.matrix.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    truth, _ = brute_force(model.double(), Weights(model), x.double(), t, 1)
    error = (found.matrix.whole().t() - truth).norm() / truth.norm()
    assert error < 4 * torch.finfo(dtype).eps
