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
from chita.batch import Batch
from chita.distill import Dense, distilled
from chita.errors import ChitaError
from chita.evaluate import accuracy
from chita.gradients import gradient_matrix
from chita.run import Run
from chita.weights import Weights

from .pruning import Again, digits, mlpnet, numbers, prune_quietly, seeded, tiny, unseen_digits


def labelled(
    model: nn.Module, batches: Any, name: str = "distill", seed: int = 0
) -> tuple[Any, Dense]:
    """The targets of all samples of `batches`, and the dense network."""
    stream, dense = distilled(model, batches, name, seed)
    (batch,) = stream.take(stream.count(10**6), 10**6)
    assert isinstance(batch.content, tuple)
    return batch.content[1], dense


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
        assert (c == 0) != moved


def test_all_stages_look_back_at_the_network_before_the_first() -> None:
    dense, model, x = tiny(), tiny(), numbers(40, 6)
    result = prune_quietly(model, Again([x]), loss="distill", ridge="auto", method="chita++")
    with torch.no_grad():  # the first fifth of the samples was held out
        log_p0, log_p = dense(x[:8]).log_softmax(1), model(x[:8]).log_softmax(1)
    expected = functional.kl_div(log_p, log_p0, log_target=True, reduction="batchmean")
    assert result.stages[-1].held_out_loss == pytest.approx(expected.item())


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
    with pytest.raises(ChitaError, match=r"needs labels.* max_loss_increase"):
        chita.prune(
            tiny(),
            [numbers(60, 6)],
            sparsity=0.5,
            loss="distill",
            batch=2,
            min_accuracy=50,
            progress=False,
        )
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
    assert distill > labels - 0.5
    assert distill > magnitude + 1
