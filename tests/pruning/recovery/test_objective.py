"""The loss of recovery: divergences by brute force, mixed samples, and the loss of the run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from chita.model.distill import DenseNetwork
from chita.model.samples.batch import Batch
from chita.model.seeds import generator_of
from chita.pruning.recovery.objective import (
    DISTILL,
    LOSS,
    STORED_BYTES,
    RecoveryTask,
    distillation,
    own_loss,
    own_loss_of,
    tasks_for,
    treats_as_features,
)
from chita.solver.ranks import ALONE
from tests.support.messages import says
from tests.support.pruning import numbers, points, seeded, tiny
from tests.support.recovering import CPU, Tokens, batch_of, halved, padded, task_of


def parts(batch: Batch) -> tuple[Any, Any]:
    assert isinstance(batch.content, tuple)
    return batch.content


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


def draw(task: Any, count: int, key: int = 0) -> list[Batch]:
    return list(task.draw(generator_of(key), ALONE, count))


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


def test_the_loss_of_the_run_is_the_users() -> None:
    model: Any = tiny()
    pair = points(40)
    task = own_loss([batch_of(*pair)], None, at_once=16, place=CPU)
    found = task.objective(model, task.example)
    torch.testing.assert_close(found, F.cross_entropy(model(pair[0]), pair[1]))
    task = own_loss([batch_of(*pair)], lambda out, y: out.sum(), at_once=16, place=CPU)
    torch.testing.assert_close(task.objective(model, task.example), model(pair[0]).sum())


class Pairs(nn.Module):
    """Its outputs are a dict without logits, which cannot be compared."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3).double()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"boxes": self.layer(x)}


def test_outputs_that_cannot_be_compared_leave_the_loss(caplog: pytest.LogCaptureFixture) -> None:
    model: Any = seeded(Pairs)
    inputs, targets = points(40)
    batch = batch_of(inputs, targets)
    (task,) = tasks_for(
        model,
        lambda: [batch],
        batch,
        lambda out, y: F.cross_entropy(out["boxes"], y),
        squares=False,
        labelled=True,
        at_once=16,
        place=CPU,
    )
    assert says(caplog.text, "loss", "dict")
    truth = F.cross_entropy(model.layer(inputs), targets)
    torch.testing.assert_close(task.objective(model, task.example), truth)


def test_a_comparable_model_is_distilled_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model: Any = tiny()
    inputs, labels = points(40)
    batch = batch_of(inputs, labels)
    task, own = tasks_for(
        model,
        lambda: [batch],
        batch,
        None,
        squares=False,
        labelled=True,
        at_once=16,
        place=CPU,
    )
    assert not caplog.records
    assert float(task.objective(model, task.example).detach()) == pytest.approx(0, abs=1e-14)
    assert (task.name, own.name) == (DISTILL, LOSS) and own.pool is task.pool
    truth = F.cross_entropy(model(inputs), labels)
    torch.testing.assert_close(own.objective(model, own.example), truth)


def test_the_samples_of_a_distillation_keep_the_targets_of_the_run() -> None:
    """Each label is the sum of its inputs, so that a shuffled pair would not fit."""
    inputs = points(160)[0]
    batch = batch_of(inputs, inputs.sum(1))
    dense = DenseNetwork(tiny(), batch, 0, squares=False)
    task = own_loss_of(distillation(dense, [batch], batch, at_once=64, place=CPU), None)
    for drawn in draw(task, 20):
        (x,), labels = parts(drawn)
        torch.testing.assert_close(labels, x.sum(1))


def test_a_dict_of_keywords_keeps_its_labels() -> None:
    keywords = {**padded(20), "labels": torch.arange(20)}

    class Labelled(Tokens):
        def forward(self, labels: Any = None, **inputs: Tensor) -> Any:
            return super().forward(**inputs)

    model: Any = seeded(Labelled)
    batch = Batch(keywords, 20)
    dense = DenseNetwork(model, batch, 0, squares=False)
    own = own_loss_of(distillation(dense, [batch], batch, at_once=8, place=CPU), None)
    for drawn in draw(own, 3):
        assert isinstance(drawn.content, dict) and drawn.content.keys() == keywords.keys()


@pytest.mark.parametrize(
    ("content", "loss", "features"),
    [
        (((numbers(2, 3),), torch.zeros(2)), None, False),
        (((numbers(2, 3),), torch.zeros(2)), F.mse_loss, True),
        (((numbers(2, 3),), torch.zeros(2)), "distill", False),
        ({"x": numbers(2, 3), "labels": torch.zeros(2)}, None, True),
        ({"x": numbers(2, 3), "labels": torch.zeros(2).long()}, None, False),
    ],
)
def test_the_loss_and_the_labels_say_what_outputs_are(
    content: Any, loss: Any, features: bool
) -> None:
    assert treats_as_features(Batch(content, 2), loss) == features
