"""Calibration without labels: the targets, the divergence and the rows."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.curvature.fisher import gradient_matrix
from chita.model.distill import DenseNetwork, distilled
from chita.model.weights import Weights
from tests.support.pruning import numbers, seeded, tiny


def labelled(
    model: nn.Module, batches: Any, name: str = "distill", seed: int = 0
) -> tuple[Any, DenseNetwork]:
    """The targets of all samples of `batches`, and the dense network."""
    stream, dense = distilled(model, batches, name, seed)
    (batch,) = stream.take(stream.count(10**6), 10**6)
    assert isinstance(batch.content, tuple)
    return batch.content[1], dense


class Normalised(nn.Module):
    """The inputs scaled to length 1."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(x, dim=1)


def shifted(model: nn.Module) -> nn.Module:
    """A copy with other weights."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.7)
    return other


def test_the_divergence_of_classes_is_that_of_kullback_and_leibler() -> None:
    model, x = tiny(), numbers(20, 6)
    targets, dense = labelled(model, [x])
    assert dense.divergence(model(x), targets).item() == 0
    p0, log_p = model(x).softmax(1), shifted(model)(x).log_softmax(1)
    expected = (p0 * (p0.log() - log_p)).sum() / 20
    torch.testing.assert_close(dense.divergence(shifted(model)(x), targets), expected)


def test_the_divergence_of_features_is_the_relative_squared_error() -> None:
    model, x = tiny(), numbers(20, 6)
    targets, dense = labelled(model, [x], "distill-mse")
    assert dense.divergence(model(x), targets).item() == 0
    assert dense.divergence(torch.zeros(20, 3), targets).item() == pytest.approx(1)
    expected = (shifted(model)(x) - model(x)).square().sum() / model(x).square().sum()
    torch.testing.assert_close(dense.divergence(shifted(model)(x), targets), expected)


def test_vectors_of_length_one_are_features_and_others_are_classes() -> None:
    """Half the squared distance of normalised embeddings is one minus their cosine."""
    x, moved = numbers(20, 6), numbers(20, 6, seed=1)
    model = Normalised()
    targets, dense = labelled(model, [x])
    expected = 2 * (1 - functional.cosine_similarity(x, moved).mean())
    torch.testing.assert_close(dense.divergence(model(moved), targets), expected)
    almost = functional.normalize(x)
    almost[0] *= 1.1
    targets, dense = labelled(nn.Identity(), [almost])
    log_p0, log_p = almost.log_softmax(1), moved.log_softmax(1)
    expected = (log_p0.exp() * (log_p0 - log_p)).sum(1).mean()
    torch.testing.assert_close(dense.divergence(moved, targets), expected)


def test_the_squares_of_the_rows_of_features_are_in_the_mean_the_divergence() -> None:
    """1/2 E c^2 is the divergence of a mini-batch, and E c a its gradient."""
    f0, step = numbers(4, 3), 0.1 * numbers(4, 3, seed=1)
    targets, dense = labelled(nn.Identity(), [f0.repeat(20_000, 1)], "distill-mse")
    one = {name: tensor[:4] for name, tensor in targets.items()}

    def row(nu: Tensor) -> tuple[Tensor, Tensor]:
        return torch.func.grad_and_value(lambda f: dense.row(f, {**one, "random": nu}))(f0 + step)

    a, c = torch.func.vmap(row)(targets["random"].view(20_000, 4, 3))
    expected = dense.divergence(f0 + step, one)
    torch.testing.assert_close(c.square().mean() / 2, expected, rtol=0.05, atol=0)
    gradient = torch.func.grad(lambda f: dense.divergence(f, one))(f0 + step)
    found = (c[:, None, None] * a).mean(0)
    assert (found - gradient).norm() < 0.05 * gradient.norm()


def test_at_the_dense_weights_the_rows_of_classes_have_the_hessian_for_second_moment() -> None:
    f0 = numbers(1, 3)
    targets, dense = labelled(nn.Identity(), [f0.repeat(20_000, 1)])
    one = {name: tensor[:1] for name, tensor in targets.items()}

    def row(uniform: Tensor) -> tuple[Tensor, Tensor]:
        given = {**one, "random": uniform[None]}
        return torch.func.grad_and_value(lambda f: dense.row(f, given))(f0)

    a, c = torch.func.vmap(row)(targets["random"])
    assert not bool(c.any())
    hessian = torch.func.hessian(lambda f: dense.divergence(f[None], one))(f0[0])
    found = a[:, 0].t() @ a[:, 0] / 20_000
    assert (found - hessian).norm() < 0.03 * hessian.norm()


@pytest.mark.parametrize("name", ["distill", "distill-mse"])
def test_draws_belong_to_the_samples_however_they_are_cut(name: str) -> None:
    model, batches = tiny(), list(numbers(30, 6).split(7))
    found = []
    for chunk in (30, 1, 4):
        stream, _ = distilled(model, batches, name, 3)
        stream.skip(2 if chunk == 4 else 0)
        pieces = list(stream.take(28 if chunk == 4 else 30, chunk))
        drawn = torch.cat([piece.content[1]["random"] for piece in pieces])  # type: ignore[index]
        found.append(drawn)
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0][2:], found[2])
    other, _ = distilled(model, batches, name, 4)
    (piece,) = other.take(30, 30)
    assert not torch.equal(piece.content[1]["random"], found[0])  # type: ignore[index]


@pytest.mark.parametrize("moved", [False, True])
def test_the_rows_are_the_gradients_of_labels_drawn_from_the_dense_network(moved: bool) -> None:
    model, x = tiny(), numbers(12, 6)
    stream, dense = distilled(model, [x], "distill", 0)
    targets, _ = labelled(model, [x])
    p0 = model(x).softmax(1).detach()
    y = torch.searchsorted(p0.cumsum(1), targets["random"][:, None]).squeeze(1)
    assert len(y.unique()) == 3
    model = shifted(model) if moved else model
    weights = Weights(model)
    found = gradient_matrix(model, weights, stream, rows=4, batch=3, loss=dense.row)
    for r in range(4):
        part = slice(3 * r, 3 * r + 3)
        value = math.sqrt(3) * functional.cross_entropy(model(x[part]), y[part])
        row = torch.autograd.grad(value, [weight.parameter for weight in weights])
        expected = torch.cat([gradient.reshape(-1) for gradient in row])
        torch.testing.assert_close(found.matrix.whole()[:, r], expected)
        signal = (model(x[part]).softmax(1) - p0[part]).square().sum()
        noise = (1 - p0[part].square().sum(1)).sum()
        c = (signal / (signal + noise) / math.sqrt(3)).item()
        assert found.losses[r].item() == pytest.approx(c)
        assert (c < 1e-20) != moved  # zero up to rounding


class Tagger(nn.Module):
    """Tokens with padding to a class for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 6)
        self.fc = nn.Linear(6, 4)

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
        out: Tensor = self.fc(self.embedding(tokens).tanh())
        return out


@pytest.mark.parametrize("name", ["distill", "distill-mse"])
def test_padding_counts_for_nothing(name: str) -> None:
    model = seeded(Tagger).double()
    tokens = torch.arange(24).view(6, 4) % 9
    mask = (torch.arange(4) < torch.tensor([[4], [2], [3], [1], [4], [2]])).long()
    other = torch.where(mask == 1, tokens, 8)
    values = []
    for given in (tokens, other):
        inputs = {"tokens": given, "attention_mask": mask}
        targets, dense = labelled(model, [inputs], name)
        outputs = shifted(model)(**inputs)
        values.append((dense.divergence(outputs, targets), dense.row(outputs, targets)))
    torch.testing.assert_close(values[0], values[1])
    answer, counted = shifted(model)(tokens, mask)[mask == 1], model(tokens, mask)[mask == 1]
    if name == "distill":
        expected = functional.kl_div(
            answer.log_softmax(1), counted.softmax(1), reduction="batchmean"
        )
    else:
        expected = (answer - counted).square().sum() / counted.square().sum()
    torch.testing.assert_close(values[0][0], expected)


class Scaled(nn.Module):
    """The inputs times a parameter, whose type is that of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("distill", 3 * numbers(100, 1024, 3)),
        ("distill-mse", 3 * numbers(100, 1024, 3)),
        ("distill-mse", 12 * numbers(20, 768).sign()),
    ],
)
def test_half_precision_gives_the_values_of_float64(
    name: str, answers: Tensor, dtype: torch.dtype
) -> None:
    """Float16 holds neither the count of 102,400 positions nor the squared length of 768 features.

    The largest number of float16 is 65,504.
    """
    dense_answers, moved = answers.to(dtype), (answers + answers.roll(1, 0) / 4).to(dtype)
    found = []
    for kind in (dtype, torch.float64):
        targets, dense = labelled(Scaled().to(kind), [dense_answers.to(kind)], name)
        outputs = moved.to(kind)
        found.append(
            (float(dense.divergence(outputs, targets)), float(dense.row(outputs, targets)))
        )
    assert found[0] == pytest.approx(found[1], rel=1e-3)
    assert found[0][0] > 0.01


def test_the_dense_network_is_asked_only_for_samples_that_are_taken() -> None:
    asked = 0

    class Counting(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            nonlocal asked
            asked += len(x) * (not self.weight.requires_grad)
            return super().forward(x)

    model = seeded(lambda: Counting(6, 3)).double()
    stream, _ = distilled(model, list(numbers(40, 6).split(4)), "distill", 0)
    assert asked == 4  # the first batch, to see what comes out
    stream.count(40)
    stream.skip(10)
    held, other = stream.hold_out([8, 4], 4, rest=20)
    assert (asked, len(held), len(other)) == (16, 2, 1)
