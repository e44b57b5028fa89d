"""Calibration without labels: the targets, the loss, and what pruning makes of them."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita.batches import Batch
from chita.distill import distilled
from chita.errors import ChitaError
from chita.evaluate import accuracy
from chita.gradients import gradient_matrix
from chita.run import Run
from chita.weights import Weights

from .pruning import Again, digits, mlpnet, numbers, prune_quietly, seeded, tiny, unseen_digits


def labelled(model: nn.Module, batches: Any, name: str = "distill", **keywords: Any) -> Any:
    """All samples of `batches` in one batch, with their targets, and the loss."""
    stream, loss = distilled(model, batches, name, keywords.pop("seed", 0))
    (batch,) = stream.take(stream.count(10**6), 10**6)
    return batch.content[0], batch.content[1], loss


def shifted(model: nn.Module) -> nn.Module:
    """A copy with other weights."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.7)
    return other


def test_the_value_is_the_divergence_from_the_dense_network() -> None:
    model, x = tiny(), numbers(20, 6)
    _, targets, loss = labelled(model, [x])
    assert loss(model(x), targets).item() == 0
    p0, log_p = model(x).softmax(1), shifted(model)(x).log_softmax(1)
    expected = (p0 * (p0.log() - log_p)).sum() / 20
    torch.testing.assert_close(loss(shifted(model)(x), targets), expected)


def test_the_value_for_features_is_the_relative_squared_error() -> None:
    model, x = tiny(), numbers(20, 6)
    _, targets, loss = labelled(model, [x], "distill-mse")
    assert loss(model(x), targets).item() == 0
    assert loss(torch.zeros(20, 3), targets).item() == pytest.approx(1)
    expected = (shifted(model)(x) - model(x)).square().sum() / model(x).square().sum()
    torch.testing.assert_close(loss(shifted(model)(x), targets), expected)


@pytest.mark.parametrize("at_dense", [True, False])
@pytest.mark.parametrize("name", ["distill", "distill-mse"])
def test_in_the_mean_over_draws_the_gradient_is_that_of_the_value(
    name: str, at_dense: bool
) -> None:
    """And at the dense outputs its second moment is the Hessian of the value."""
    f0 = torch.tensor([[0.3, -0.4, 1.0]], dtype=torch.float64)
    _, targets, loss = labelled(nn.Identity(), [f0.expand(5000, 3)], name)
    f = (f0 if at_dense else f0 + torch.tensor([[0.5, 0.0, -1.0]])).squeeze()
    one = {"answer": f0, "counted": torch.ones(1)}

    def value(f: Tensor) -> Tensor:
        if name == "distill":
            return functional.kl_div(f.log_softmax(0), f0[0].softmax(0), reduction="sum")
        return (f - f0[0]).square().sum() / f0.square().sum()

    def gradient(drawn: Tensor) -> Tensor:
        return torch.func.grad(lambda f: loss(f[None], {**one, "drawn": drawn[None]}))(f)

    gradients = torch.func.vmap(gradient)(targets["drawn"])
    expected = torch.autograd.functional.jacobian(value, f)
    noise = 4 * gradients.std(0).max().item() / math.sqrt(len(gradients))
    torch.testing.assert_close(gradients.mean(0), expected, rtol=0, atol=noise)
    if at_dense:
        second = gradients.t() @ gradients / len(gradients)
        hessian = torch.autograd.functional.hessian(value, f)
        assert (second - hessian).norm() < 0.1 * hessian.norm()


def test_classes_are_drawn_as_often_as_the_dense_network_says() -> None:
    logits = numbers(1, 5)
    _, targets, _ = labelled(nn.Identity(), [logits.expand(500, 5)] * 40)
    share = targets["drawn"].bincount(minlength=5) / 20_000
    torch.testing.assert_close(share.double(), logits.softmax(1)[0], rtol=0, atol=0.015)


@pytest.mark.parametrize("name", ["distill", "distill-mse"])
def test_draws_belong_to_the_samples_however_they_are_cut(name: str) -> None:
    model, batches = tiny(), list(numbers(30, 6).split(7))
    found = []
    for chunk in (30, 1, 4):
        stream, _ = distilled(model, batches, name, 3)
        stream.skip(2 if chunk == 4 else 0)
        pieces = list(stream.take(28 if chunk == 4 else 30, chunk))
        drawn = torch.cat([piece.content[1]["drawn"] for piece in pieces])  # type: ignore[index]
        found.append(drawn)
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0][2:], found[2])
    other, _ = distilled(model, batches, name, 4)
    (piece,) = other.take(30, 30)
    assert not torch.equal(piece.content[1]["drawn"], found[0])  # type: ignore[index]


class Keywords(nn.Module):
    """`tiny` by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.network = tiny()

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.network(features)
        return logits


def test_tensors_tuples_and_dicts_are_all_inputs() -> None:
    x = numbers(40, 6)
    nonsense = torch.zeros(8, 2)
    vectors = []
    for model, batches in (
        (tiny(), list(x.split(8))),
        (tiny(), [(part,) for part in x.split(8)]),
        (tiny(), [(part, nonsense) for part in x.split(8)]),
        (tiny(), [[part, "what", nonsense] for part in x.split(8)]),
        (Keywords(), [{"features": part} for part in x.split(8)]),
    ):
        prune_quietly(model, batches, loss="distill")
        vectors.append(Weights(model).vector())
    assert all(torch.equal(vector, vectors[0]) for vector in vectors[1:])


def test_the_rows_are_the_gradients_of_the_drawn_labels() -> None:
    model, x = tiny(), numbers(12, 6)
    weights = Weights(model)
    stream, loss = distilled(model, [x], "distill", 0)
    found = gradient_matrix(model, weights, stream, rows=4, batch=3, loss=loss)
    _, targets, _ = labelled(model, [x])
    for r in range(4):
        part = slice(3 * r, 3 * r + 3)
        value = functional.cross_entropy(model(x[part]), targets["drawn"][part])
        row = torch.autograd.grad(value, [weight.parameter for weight in weights])
        expected = torch.cat([gradient.reshape(-1) for gradient in row])
        torch.testing.assert_close(found.matrix.whole()[:, r], expected)
    assert found.loss == 0


def test_all_stages_look_back_at_the_network_before_the_first() -> None:
    dense, model, x = tiny(), tiny(), numbers(40, 6)
    result = prune_quietly(model, Again([x]), loss="distill", ridge="auto", batch=2)
    with torch.no_grad():  # the first fifth of the samples was held out
        log_p0, log_p = dense(x[:8]).log_softmax(1), model(x[:8]).log_softmax(1)
    expected = functional.kl_div(log_p, log_p0, log_target=True, reduction="batchmean")
    assert result.stages[-1].held_out_loss == pytest.approx(expected.item())
    assert [stage.loss == 0 for stage in result.stages] == [True, False, False, False]


def test_a_resumed_run_looks_back_as_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, whole, broken, resumed = list(numbers(40, 6).split(8)), tiny(), tiny(), tiny()
    keywords: dict[str, Any] = {"loss": "distill", "ridge": "auto"}
    prune_quietly(whole, batches, **keywords)
    stage = Run.stage

    def interrupted(self: Run, number: int, *args: Any) -> Any:
        if number == 3:
            raise KeyboardInterrupt
        return stage(self, number, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Run, "stage", interrupted)
        prune_quietly(broken, batches, **keywords, checkpoints=tmp_path)
    assert not torch.equal(Weights(broken).vector(), Weights(whole).vector())
    with pytest.raises(ChitaError, match="loss"):
        other = {**keywords, "loss": "distill-mse"}
        prune_quietly(tiny(), batches, **other, checkpoints=tmp_path, resume=True)
    prune_quietly(resumed, batches, **keywords, checkpoints=tmp_path, resume=True)
    assert torch.equal(Weights(resumed).vector(), Weights(whole).vector())


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
        _, targets, loss = labelled(model, [inputs], name)
        values.append(loss(shifted(model)(**inputs), targets))
    torch.testing.assert_close(values[0], values[1])
    answer, counted = shifted(model)(tokens, mask)[mask == 1], model(tokens, mask)[mask == 1]
    if name == "distill":
        expected = functional.kl_div(
            answer.log_softmax(1), counted.softmax(1), reduction="batchmean"
        )
    else:
        expected = (answer - counted).square().sum() / counted.square().sum()
    torch.testing.assert_close(values[0], expected)


def test_one_output_is_taken_for_a_feature() -> None:
    model = seeded(lambda: nn.Linear(6, 1)).double()
    result = prune_quietly(model, [numbers(24, 6)], loss="distill", sparsity=0.5, ridge="auto")
    assert result.nonzeros == 3
    last = result.stages[-1].held_out_loss
    assert last is not None
    assert 0 < last < 1


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_whatever_mode_the_caller_is_in(context: Any) -> None:
    model, other, batches = tiny(), tiny(), [numbers(40, 6)]
    with context():
        prune_quietly(model, batches, loss="distill", ridge="auto")
    prune_quietly(other, batches, loss="distill", ridge="auto")
    assert torch.equal(Weights(model).vector(), Weights(other).vector())


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
    held: list[Batch] = stream.hold_out(8, 4)
    assert (asked, len(held)) == (12, 2)


def test_errors() -> None:
    with pytest.raises(ChitaError, match=r"loss must be .*\['distill', 'distill-mse'\], got 'kl'"):
        prune_quietly(tiny(), [numbers(24, 6)], loss="kl")
    with pytest.raises(ChitaError, match="batches hold no samples"):
        prune_quietly(tiny(), [], loss="distill")
    with pytest.raises(ChitaError, match=r"batch 0: .* takes a tensor, .* got a str"):
        prune_quietly(tiny(), ["text"], loss="distill")
    with pytest.raises(ChitaError, match="can be read only once"):
        prune_quietly(tiny(), iter([numbers(24, 6)]), loss="distill")
    prune_quietly(tiny(), [], loss="distill", method="magnitude")  # reads no data


def test_without_labels_the_digits_are_told_apart_as_well_as_with_them() -> None:
    """In one stage; magnitude is what the divergence itself would come to, its A being zero."""
    test, batches = unseen_digits(), digits(3000)
    found = {}
    for loss, method in (("distill", "chita-bso"), (None, "chita-bso"), (None, "magnitude")):
        model = mlpnet()
        data: Any = batches if loss is None else [images for images, _ in batches]
        chita.prune(
            model,
            data,
            sparsity=0.9,
            loss=loss,
            method=method,
            samples=250,
            batch=8,
            progress=False,
        )
        found[loss, method] = accuracy(model, test)
    distill, labels, magnitude = found.values()
    assert distill > labels - 1
    assert distill > magnitude + 1
