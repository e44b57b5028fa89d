"""The distillation of recovery: divergences by brute force, and mixed samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from chita.model.distill import DenseNetwork
from chita.model.samples.batch import Batch
from chita.pruning.recovery.objective import STORED_BYTES, RecoveryTask, distillation
from tests.support.pruning import numbers, points, seeded, tiny
from tests.support.recovering import (
    CPU,
    Tokens,
    batch_of,
    draw,
    halved,
    padded,
    parts,
    task_of,
)


def softness(logits: Tensor, at_once: int = 64, counted: Tensor | None = None) -> float:
    """The temperature of the first samples, by the differences of their two largest logits."""
    first, second = logits.detach().sort(-1, descending=True).values[:at_once, ..., :2].unbind(-1)
    mask = torch.ones_like(first) if counted is None else counted[:at_once]
    found = float(((first - second) * mask).sum() / mask.sum()) / 2.2
    return min(max(found, 4.0), 16.0)


def confident(model: nn.Module) -> Any:
    """The model with large logits."""
    last = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(40)
    return model


@pytest.mark.parametrize("squares", [False, True])
def test_the_teacher_itself_does_not_diverge(squares: bool) -> None:
    model: Any = tiny()
    task = task_of(model, squares=squares)
    batch = task.example
    assert float(task.objective(model, batch).detach()) == pytest.approx(0, abs=1e-14)
    assert float(task.objective(halved(model), batch).detach()) > 0.01


def test_classes_are_compared_by_the_divergence_of_softened_probabilities() -> None:
    model = confident(tiny())
    pruned, task = halved(model), task_of(model)
    inputs = parts(task.example)[0][0]
    temperature = softness(model(inputs))
    p0, p = ((net(inputs) / temperature).softmax(1) for net in (model, pruned))
    truth = temperature**2 * (p0 * (p0 / p).log()).sum(1).mean()
    torch.testing.assert_close(task.objective(pruned, task.example), truth)


@pytest.mark.parametrize(
    ("logits", "temperature"),
    [
        (torch.tensor([[11.0, -11.0, -30.0], [0.0, 22.0, -30.0]]), 10.0),
        (torch.tensor([[1.0, -1.0]]), 4.0),
        (torch.tensor([[100.0, -100.0]]), 16.0),
        (torch.tensor([[1.0, float("-inf")]]), 4.0),
    ],
)
def test_a_confident_network_gets_a_higher_temperature(logits: Tensor, temperature: float) -> None:
    dense = DenseNetwork(tiny(), batch_of(points(4)[0]), 0, squares=False)
    targets = {"answer": logits, "counted": torch.ones(len(logits))}
    assert dense.temperature(targets) == pytest.approx(temperature)


def test_features_are_compared_by_squares_relative_to_their_size() -> None:
    model: Any = tiny()
    pruned, task = halved(model), task_of(model, points(20)[0], squares=True)
    inputs = parts(task.example)[0][0]
    truth = (model(inputs) - pruned(inputs)).square().sum() / model(inputs).square().sum()
    torch.testing.assert_close(task.objective(pruned, task.example), truth)


@pytest.mark.parametrize("labels", [False, True])
def test_dicts_with_padding_are_compared_at_tokens_only(labels: bool) -> None:
    model = confident(seeded(Tokens).double())
    pruned = halved(model)
    keywords = padded(20)
    first = Batch(keywords, 20) if labels else Batch(((keywords,), torch.arange(20)), 20)
    dense = DenseNetwork(model, first, 0, squares=False)
    task = distillation(dense, [first], first, at_once=8, place=CPU)
    assert task.mix is None  # a mean of tokens is no token
    mask = keywords["attention_mask"].double()
    temperature = softness(model(**keywords).logits, 8, mask)
    p0, p = ((net(**keywords).logits / temperature).softmax(-1) for net in (model, pruned))
    each = temperature**2 * (p0 * (p0 / p).log()).sum(-1)
    found = task.objective(pruned, task.example)
    torch.testing.assert_close(found, (each * mask).sum() / mask.sum())
    with torch.no_grad():
        pruned.embedding.weight[0] += 5  # the token of padded positions
    torch.testing.assert_close(task.objective(pruned, task.example), found)
    assert all(parts(batch)[0][0].keys() == keywords.keys() for batch in draw(task, 3))


def nearest(x: Tensor, inputs: Tensor) -> Tensor:
    """The largest difference of each sample from the input that is most like it."""
    return (x[:, None] - inputs).abs().amax(2).amin(1)


def test_half_of_each_batch_are_means_that_the_teacher_answers() -> None:
    model: Any = tiny()
    inputs = points(160)[0]
    task = task_of(model, inputs)
    found = draw(task, 20)  # more than are prepared at once
    for batch in found:
        (x,), targets = parts(batch)
        assert batch.size == len(x) == task.pool.batch == 20
        torch.testing.assert_close(targets["answer"], model(x).detach())
        distance = nearest(x, inputs)
        assert bool((distance[:10] == 0).all())  # the first half are samples
        assert int((distance[10:] > 1e-3).sum()) >= 8
    again, other = draw(task, 20), draw(task, 20, key=1)
    assert torch.equal(parts(found[-1])[0][0], parts(again[-1])[0][0])
    assert not torch.equal(parts(found[-1])[0][0], parts(other[-1])[0][0])


@pytest.mark.parametrize("at_once", [1, 16])
@pytest.mark.parametrize("steps", [1, 4, 37])
def test_the_teacher_answers_no_more_than_the_steps_use(
    at_once: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch by batch, as on a CPU, or for several batches at once."""
    task, answered, answers = task_of(tiny()), list[int](), DenseNetwork.answers

    def counted(dense: DenseNetwork, batch: Batch) -> Batch:
        answered.append(batch.size)
        return answers(dense, batch)

    assert task.ahead(steps) == 1
    monkeypatch.setattr(RecoveryTask, "ahead", lambda task, steps: min(at_once, steps))
    monkeypatch.setattr(DenseNetwork, "answers", counted)
    assert len(draw(task, steps)) == steps
    assert sum(answered) == steps * task.pool.batch // 2
    assert len(answered) == -(-steps // at_once)


def test_a_mean_lies_between_two_samples_of_its_batch() -> None:
    line = torch.arange(160, dtype=torch.float64)[:, None]
    inputs = torch.cat([line, 2 * line, torch.ones(160, 4, dtype=torch.float64)], 1)
    for batch in draw(task_of(tiny(), inputs), 4):
        x = parts(batch)[0][0][10:]
        torch.testing.assert_close(x[:, 1], 2 * x[:, 0])
        assert torch.equal(x[:, 2:], torch.ones_like(x[:, 2:]))
        assert float(x[:, 0].min()) >= 0 and float(x[:, 0].max()) <= 159


@pytest.mark.parametrize(
    "inputs", [[numbers(1, 6)], [numbers(20, 6), numbers(20, 5)]], ids=["one", "shapes"]
)
def test_single_samples_and_samples_of_several_shapes_are_not_mixed(inputs: list[Tensor]) -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(x.mean(1, keepdim=True))
            return out

    batches = [batch_of(x) for x in inputs]
    dense = DenseNetwork(seeded(Mean), batches[0], 0, squares=False)
    task = distillation(dense, batches, batches[0], at_once=8, place=CPU)
    for batch in draw(task, 8):
        x = parts(batch)[0][0]
        given = next(each for each in inputs if each.shape[1] == x.shape[1])
        assert not bool(nearest(x, given).any())


def test_large_answers_are_computed_when_they_are_needed() -> None:
    wide = confident(seeded(lambda: nn.Linear(6, STORED_BYTES // 8 + 1)).double())
    narrow = confident(seeded(lambda: nn.Linear(6, 3)).double())
    for model, stored in ((wide, False), (narrow, True)):
        pruned, task = halved(model), task_of(model)
        (batch, *_) = draw(task, 1)
        assert isinstance(parts(batch)[1], dict) == stored
        temperature = softness(model(points(160)[0]))
        p, p0 = ((net(parts(batch)[0][0]) / temperature).log_softmax(1) for net in (pruned, model))
        truth = temperature**2 * F.kl_div(p, p0, reduction="batchmean", log_target=True)
        torch.testing.assert_close(task.objective(pruned, batch), truth)
