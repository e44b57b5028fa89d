"""The loss of recovery: divergences by brute force, mixed samples, and the loss of the run."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from chita.model.batch import Batch
from chita.model.distill import Dense
from chita.model.seeds import generator_of
from chita.pruning.recovery.objective import (
    STORED_BYTES,
    TEMPERATURE,
    distillation,
    lesson_for,
    own_loss,
    treats_as_features,
)
from chita.solver.ranks import ALONE
from tests.support.messages import says
from tests.support.pruning import numbers, points, seeded, tiny
from tests.support.recovering import CPU, Tokens, batch_of, halved, lesson_of, padded


def parts(batch: Batch) -> tuple[Any, Any]:
    assert isinstance(batch.content, tuple)
    return batch.content


@pytest.mark.parametrize("squares", [False, True])
def test_the_teacher_itself_does_not_diverge(squares: bool) -> None:
    model: Any = tiny()
    lesson = lesson_of(model, squares=squares)
    batch = lesson.pool.example
    assert float(lesson.objective(model, batch).detach()) == pytest.approx(0, abs=1e-14)
    assert float(lesson.objective(halved(model), batch).detach()) > 0.01


def test_classes_are_compared_by_the_divergence_of_softened_probabilities() -> None:
    model: Any = tiny()
    pruned, lesson = halved(model), lesson_of(model)
    inputs = parts(lesson.pool.example)[0][0]
    p0, p = ((net(inputs) / TEMPERATURE).softmax(1) for net in (model, pruned))
    truth = TEMPERATURE**2 * (p0 * (p0 / p).log()).sum(1).mean()
    torch.testing.assert_close(lesson.objective(pruned, lesson.pool.example), truth)


def test_features_are_compared_by_squares_relative_to_their_size() -> None:
    model: Any = tiny()
    pruned, lesson = halved(model), lesson_of(model, points(20)[0], squares=True)
    inputs = parts(lesson.pool.example)[0][0]
    truth = (model(inputs) - pruned(inputs)).square().sum() / model(inputs).square().sum()
    torch.testing.assert_close(lesson.objective(pruned, lesson.pool.example), truth)


@pytest.mark.parametrize("labels", [False, True])
def test_dicts_with_padding_are_compared_at_tokens_only(labels: bool) -> None:
    model: Any = seeded(Tokens).double()
    pruned = halved(model)
    keywords = padded(20)
    first = Batch(keywords, 20) if labels else Batch(((keywords,), torch.arange(20)), 20)
    dense = Dense(model, first, 0, squares=False)
    lesson = distillation(dense, [first], first, at_once=8, place=CPU)
    assert lesson.prepare is None  # a mean of tokens is no token
    mask = keywords["attention_mask"].double()
    p0, p = ((net(**keywords).logits / TEMPERATURE).softmax(-1) for net in (model, pruned))
    each = TEMPERATURE**2 * (p0 * (p0 / p).log()).sum(-1)
    found = lesson.objective(pruned, lesson.pool.example)
    torch.testing.assert_close(found, (each * mask).sum() / mask.sum())
    with torch.no_grad():
        pruned.embedding.weight[0] += 5  # the token of padded positions
    torch.testing.assert_close(lesson.objective(pruned, lesson.pool.example), found)
    assert all(parts(batch)[0][0].keys() == keywords.keys() for batch in draw(lesson, 3))


def nearest(x: Tensor, inputs: Tensor) -> Tensor:
    """The largest difference of each sample from the input that is most like it."""
    return (x[:, None] - inputs).abs().amax(2).amin(1)


def draw(lesson: Any, count: int, key: int = 0) -> list[Batch]:
    return list(islice(lesson.draw(generator_of(key), ALONE), count))


def test_half_of_each_batch_are_means_that_the_teacher_answers() -> None:
    model: Any = tiny()
    inputs = points(160)[0]
    lesson = lesson_of(model, inputs)
    found = draw(lesson, 20)  # more than are prepared at once
    for batch in found:
        (x,), targets = parts(batch)
        assert batch.size == len(x) == lesson.pool.batch == 20
        torch.testing.assert_close(targets["answer"], model(x).detach())
        distance = nearest(x, inputs)
        assert bool((distance[:10] == 0).all())  # the first half are samples
        assert int((distance[10:] > 1e-3).sum()) >= 8
    again, other = draw(lesson, 20), draw(lesson, 20, key=1)
    assert torch.equal(parts(found[-1])[0][0], parts(again[-1])[0][0])
    assert not torch.equal(parts(found[-1])[0][0], parts(other[-1])[0][0])


def test_a_mean_lies_between_two_samples_of_its_batch() -> None:
    line = torch.arange(160, dtype=torch.float64)[:, None]
    inputs = torch.cat([line, 2 * line, torch.ones(160, 4, dtype=torch.float64)], 1)
    for batch in draw(lesson_of(tiny(), inputs), 4):
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
    dense = Dense(seeded(Mean), batches[0], 0, squares=False)
    lesson = distillation(dense, batches, batches[0], at_once=8, place=CPU)
    for batch in draw(lesson, 8):
        x = parts(batch)[0][0]
        given = next(each for each in inputs if each.shape[1] == x.shape[1])
        assert not bool(nearest(x, given).any())


def test_large_answers_are_computed_when_they_are_needed() -> None:
    wide: Any = seeded(lambda: nn.Linear(6, STORED_BYTES // 8 + 1)).double()
    narrow: Any = seeded(lambda: nn.Linear(6, 3)).double()
    for model, stored in ((wide, False), (narrow, True)):
        pruned, lesson = halved(model), lesson_of(model)
        (batch, *_) = draw(lesson, 1)
        assert isinstance(parts(batch)[1], dict) == stored
        p, p0 = ((net(parts(batch)[0][0]) / TEMPERATURE).log_softmax(1) for net in (pruned, model))
        truth = TEMPERATURE**2 * F.kl_div(p, p0, reduction="batchmean", log_target=True)
        torch.testing.assert_close(lesson.objective(pruned, batch), truth)


def test_the_loss_of_the_run_is_the_users() -> None:
    model: Any = tiny()
    pair = points(40)
    lesson = own_loss([batch_of(*pair)], None, at_once=16, place=CPU)
    found = lesson.objective(model, lesson.pool.example)
    torch.testing.assert_close(found, F.cross_entropy(model(pair[0]), pair[1]))
    lesson = own_loss([batch_of(*pair)], lambda out, y: out.sum(), at_once=16, place=CPU)
    torch.testing.assert_close(lesson.objective(model, lesson.pool.example), model(pair[0]).sum())


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
    lesson = lesson_for(
        model,
        lambda: [batch],
        batch,
        lambda out, y: F.cross_entropy(out["boxes"], y),
        squares=False,
        at_once=16,
        place=CPU,
    )
    assert says(caplog.text, "loss", "dict")
    truth = F.cross_entropy(model.layer(inputs), targets)
    torch.testing.assert_close(lesson.objective(model, lesson.pool.example), truth)


def test_a_comparable_model_is_distilled_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model: Any = tiny()
    batch = batch_of(*points(40))
    lesson = lesson_for(model, lambda: [batch], batch, None, squares=False, at_once=16, place=CPU)
    assert not caplog.records
    assert float(lesson.objective(model, lesson.pool.example).detach()) == pytest.approx(
        0, abs=1e-14
    )


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
