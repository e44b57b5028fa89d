"""How the calibration samples are divided into rows of A and those held out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

from chita import ChitaError
from chita.model.sample_stream import SampleStream
from chita.model.weights import Weights
from chita.pruning.calibration import divide_samples
from chita.pruning.config import PruneConfig
from tests.support.messages import naming, says
from tests.support.pruning import Again, Watch, cut, numbers, points, tiny
from tests.support.pruning import prune_quietly as prune

Pair = tuple[Tensor, Tensor]
HELD_OUT = re.compile(r"h[eo]ld[- ]out")


class Shuffling:
    """Batches of seven that come in another order each time."""

    def __init__(self, samples: Pair) -> None:
        self.samples, self.generator = samples, torch.Generator().manual_seed(3)

    def __iter__(self) -> Iterator[Pair]:
        order = torch.randperm(len(self.samples[0]), generator=self.generator)
        return iter(cut((self.samples[0][order], self.samples[1][order]), 7))


class Augmenting(Dataset[tuple[Tensor, Tensor]]):
    """Adds noise to all inputs but the first, which tells the samples apart."""

    def __init__(self, samples: Pair) -> None:
        self.samples, self.generator = samples, torch.Generator().manual_seed(4)

    def __len__(self) -> int:
        return len(self.samples[0])

    def __getitem__(self, place: int) -> Pair:
        inputs = self.samples[0][place].clone()
        inputs[1:] += torch.randn(5, generator=self.generator, dtype=torch.float64) / 100
        return inputs, self.samples[1][place]


def shuffled_loader(samples: Pair) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(5)
    return DataLoader(TensorDataset(*samples), 7, shuffle=True, generator=generator)


LOADERS: dict[str, Callable[[Pair], Any]] = {
    "a list": lambda samples: cut(samples, 7),
    "a DataLoader": lambda samples: DataLoader(TensorDataset(*samples), 7),
    "a shuffling DataLoader": shuffled_loader,
    "something that shuffles": Shuffling,
    "an augmenting DataLoader": lambda samples: DataLoader(Augmenting(samples), 7),
    "one that shuffles, too": lambda samples: DataLoader(Augmenting(samples), 7, shuffle=True),
}


def passes(watch: Watch) -> list[tuple[Tensor, bool]]:
    """The inputs of all forward passes and whether gradients were taken; the last one, which
    counts the multiply-adds of a sample, is left out."""
    return list(zip(watch.inputs, watch.with_gradients, strict=True))[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["chita++", "auto"])
@pytest.mark.parametrize("kind", LOADERS)
def test_held_out_samples_are_never_in_the_gradients(kind: str, method: str) -> None:
    """Nor are those that give the reported loss among those that choose: 50 samples make 9 rows of
    4, 8 to choose by and 5 to measure on."""
    model, samples = tiny(), points(50)
    watch = Watch(model)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        prune(
            model,
            LOADERS[kind](samples),
            ridge="auto",
            batch=4,
            stages=20,
            method=method,
            recover=False,
        )
    seen: dict[bool, set[float]] = {True: set(), False: set()}
    for inputs, gradients in passes(watch):
        seen[gradients].update(inputs[:, 0].tolist())
    once = samples[0][:, 0].tolist()
    assert seen[True] <= set(once) and seen[False] <= set(once)
    if method == "auto":  # whose repairs run forward over samples of A
        assert len(seen[True]) <= 37
    else:
        assert not seen[True] & seen[False] and len(seen[False]) == 13
        assert len(seen[True]) == 37 or "augmenting" in kind or "shuffles" in kind


@pytest.mark.parametrize("given", ["a list", "an augmenting DataLoader"])
def test_held_out_samples_may_be_given(given: str) -> None:
    """Rows then come from all other samples, and are augmented anew at each stage."""
    model, (x, t) = tiny(), points(50)
    watch = Watch(model)
    other = x[:10], t[:10]
    data = LOADERS[given]((x, t) if given == "a list" else (x[10:], t[10:]))
    prune(model, data, ridge="auto", batch=4, stages=20, held_out=cut(other, 3), recover=False)
    rows = torch.cat([inputs for inputs, gradients in passes(watch) if gradients])
    held = torch.cat([inputs for inputs, gradients in passes(watch) if not gradients])
    assert set(held[:, 0].tolist()) == set(x[:10, 0].tolist())
    assert set(rows[:, 0].tolist()) == set(x[10:, 0].tolist())
    assert (len(rows.unique(dim=0)) > 40) == (given != "a list")


def test_samples_of_the_same_content_stay_together() -> None:
    """Of 120 samples, 18 would choose and 12 measure: each part gets one content, ten times."""
    model, (x, t) = tiny(), points(12)
    watch = Watch(model)
    prune(
        model,
        cut((x.repeat(10, 1), t.repeat(10)), 8),
        ridge="auto",
        batch=4,
        stages=3,
        recover=False,
    )
    seen: dict[bool, set[float]] = {True: set(), False: set()}
    for inputs, gradients in passes(watch):
        seen[gradients].update(inputs[:, 0].tolist())
    assert len(seen[True]) == 10 and len(seen[False]) == 2 and not seen[True] & seen[False]


def test_a_sampler_that_draws_some_of_the_samples() -> None:
    """A pass may then have fewer samples beside those held out than the one that was divided."""
    data = TensorDataset(*points(60))
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        sampler = RandomSampler(data, num_samples=41, generator=generator)
        loader: DataLoader[Any] = DataLoader(data, 7, sampler=sampler)
        found = divide_samples(
            SampleStream(loader), PruneConfig(sparsity=0.5, method="chita++", samples=8, batch=2)
        )
        assert found.rows == 8 and found.held_out and found.measured


def test_augmented_samples_without_labels(caplog: pytest.LogCaptureFixture) -> None:
    """They are kept as they were read first, and the model's answers belong to them."""
    result = prune(
        tiny(), DataLoader(Augmenting(points(50)), 7), ridge="auto", loss="distill", recover=False
    )
    assert result.held_out_loss is not None and 0 < result.held_out_loss < 1
    assert says(caplog.text, "batches", "samples")


class Once:
    """Looks as if it could be read again."""

    def __init__(self) -> None:
        self.rest = iter(cut(points(50), 7))

    def __iter__(self) -> Iterator[Pair]:
        return self.rest


def test_data_that_cannot_be_read_again() -> None:
    with pytest.raises(ChitaError, match=naming("batches", "samples", "list", "DataLoader")):
        prune(tiny(), Once(), ridge="auto", recover=False)


@pytest.mark.parametrize("held_out", [5, iter([points(5)]), []])
def test_held_out_samples_of_the_wrong_kind(held_out: Any) -> None:
    with pytest.raises(ChitaError, match=naming("held_out")):
        prune(tiny(), [points(20)], ridge="auto", held_out=held_out, recover=False)


@pytest.mark.parametrize(
    ("data", "arguments", "message"),
    [
        (1, {}, naming("batches", "samples", HELD_OUT)),
        (5, {"samples": 7}, naming(6, 10, 7, HELD_OUT, "ridge='auto'")),
    ],
)
def test_too_few_distinct_samples(data: int, arguments: dict[str, Any], message: str) -> None:
    x, t = points(data)
    copies = x.repeat(10 // data, 1), t.repeat(10 // data)
    with pytest.raises(ChitaError, match=message):
        prune(tiny(), [copies], ridge="auto", batch=1, **{"recover": False, **arguments})


def test_samples_are_held_out_for_something() -> None:
    with pytest.raises(ChitaError, match=naming("held_out", "ridge=0.01", "ridge='auto'")):
        prune(tiny(), [points(20)], held_out=[points(5, seed=1)], recover=False)
    with pytest.raises(ChitaError, match=naming("batches", "samples", HELD_OUT)):
        prune(tiny(), [points(20)], ridge="auto", held_out=[points(20)], recover=False)


def test_the_floor_is_checked_on_samples_that_choose_nothing() -> None:
    stream = SampleStream([points(1000)], 0)
    found = divide_samples(
        stream, PruneConfig(sparsity=0.5, method="auto", min_accuracy=50.0, recover=False)
    )
    parts = [found.held_out, found.measured, list(stream.take(1000, 100))]
    keys = [{float(v) for b in part for v in b.content[0][0][:, 0]} for part in parts]
    assert [len(each) for each in keys] == [150, 200, 650]
    assert not (keys[0] & keys[1] or keys[0] & keys[2] or keys[1] & keys[2])


def test_a_fixed_ridge_holds_nothing_out() -> None:
    model, (x, t) = tiny(), points(50)
    watch = Watch(model)
    prune(model, cut((x, t), 7), batch=5, recover=False)
    *stages, counted = watch.with_gradients
    assert all(stages) and not counted  # at the end, the multiply-adds of one sample
    assert {value for inputs in watch.inputs for value in inputs[:, 0].tolist()} == set(
        x[:, 0].tolist()
    )


@pytest.mark.parametrize(
    ("data", "batch", "samples", "ridge", "rows"),
    [
        (50, 7, None, 0.1, 7),  # as many as the data give
        (1300, 1, None, 0.1, 1000),  # at most 1000
        (1300, 1, 1200, 0.1, 1200),  # unless more are asked for
        (1400, 1, None, "auto", 1000),  # the other 400 are held out
        (1000, 1, None, "auto", 750),  # a quarter is held out
        (2, 1, None, "auto", 1),
        (50, 7, 7, "auto", 7),  # one sample is left to hold out
    ],
)
def test_rows_of_the_matrix(data: int, batch: int, samples: Any, ridge: Any, rows: int) -> None:
    result = prune(
        tiny(), [points(data)], method="chita-bso", batch=batch, samples=samples, ridge=ridge
    )
    assert result.samples == rows


@pytest.mark.parametrize(
    ("data", "arguments", "batch", "rows", "held"),
    [
        (100, {}, 1, 75, (15, 10)),  # few: a row each, and a quarter held out
        (600, {}, 1, 450, (90, 60)),
        (1000, {"samples": 700}, 1, 700, (150, 150)),  # which two samples a row could not give
        (700, {}, 2, 262, (105, 70)),  # all are used, in fewer rows
        (2700, {"samples": 1000}, 2, 1000, (405, 295)),  # the rows asked for, the rest held out
        (30_000, {}, 16, 1000, (4000, 4000)),  # no more than 16 are averaged, nor more held out
        (30_000, {"samples": 100}, 16, 100, (600, 600)),  # three eighths of few
        (30_000, {"samples": 50, "batch": 4}, 4, 50, (75, 75)),
        (30_000, {"batch": 1}, 1, 1000, (375, 375)),
        (8000, {}, 12, 500, (1200, 800)),
        (100, {"samples": 2, "batch": 1}, 1, 2, (1, 1)),  # one at least: nothing is unguarded
    ],
)
def test_auto_picks_the_batch_and_bounds_what_is_held_out(
    data: int, arguments: dict[str, Any], batch: int, rows: int, held: tuple[int, int]
) -> None:
    """Eight candidates then cost no more than the gradients, which cost three passes a sample."""
    found = divide_samples(
        SampleStream([points(data)]),
        PruneConfig(sparsity=0.5, method="auto", **arguments, recover=False),
    )
    counts = tuple(sum(b.size for b in part) for part in (found.held_out, found.measured))
    assert (found.batch, found.rows, counts) == (batch, rows, held)
    assert 8 * counts[0] <= max(3 * rows * batch, 8)


@pytest.mark.parametrize(
    ("given", "batch", "most"),
    [(2, 4, 4), (12, 4, 12), (300, 1, 256), (1000, 300, 300)],
)
def test_no_forward_pass_takes_more_than_what_is_given_or_a_row(
    given: int, batch: int, most: int
) -> None:
    """Neither to hold out, nor to repair."""
    model = tiny()
    watch = Watch(model)
    data = Again(cut(points(3000), given))
    prune(model, data, method="auto", batch=batch, samples=2, sparsity=0.5, stages=1, recover=False)
    forward = [
        len(inputs)
        for inputs, gradients in zip(watch.inputs, watch.with_gradients, strict=True)
        if not gradients
    ]
    assert max(forward) <= most
    found = divide_samples(
        SampleStream(data), PruneConfig(sparsity=0.5, batch=batch, recover=False)
    )
    held = sum(part.size for part in found.held_out)
    assert found.at_once == most and found.held_out[0].size == min(most, held)


@pytest.mark.parametrize("given", [None, 47])
def test_held_out_losses_have_a_spread(given: int | None) -> None:
    """Also where mini-batches do not divide the samples: the rest is a part of its own."""
    held_out = None if given is None else [points(given, seed=1)]
    result = prune(
        tiny(),
        [points(203)],
        ridge="auto",
        method="auto",
        batch=4,
        held_out=held_out,
        recover=False,
    )
    assert all(row.held_out_error for row in result.stages) and result.held_out_error
    stream = SampleStream([points(203)])
    found = divide_samples(stream, PruneConfig(sparsity=0.5, batch=4, ridge="auto", recover=False))
    assert [batch.size for batch in found.held_out] == [28, 3]
    assert [batch.size for batch in found.measured] == [20]


@pytest.mark.parametrize("batch", [3, 4, 8])
@pytest.mark.parametrize("method", ["chita++", "auto"])
def test_rows_of_batches_that_differ_in_shape(method: str, batch: int) -> None:
    """What is left of a batch is made up to whole rows, none of which has samples of another."""
    inputs = [numbers(8, length, 6, seed=length) for length in range(2, 12)]
    data = Again([(x, x[:, 0, :3].argmax(1)) for x in inputs])
    stream = SampleStream(data)
    config = PruneConfig(sparsity=0.5, method=method, batch=batch, recover=False)
    found = divide_samples(stream, config)
    pieces = list(stream.take(found.rows * batch, 32, unit=batch))
    assert all(piece.size % batch == 0 for piece in pieces)
    rows, held = (
        {float(value) for piece in part for value in piece.content[0][0][:, 0, 0]}
        for part in (pieces, [*found.held_out, *found.measured])
    )
    assert not rows & held and len(held) == 20 and len(rows) >= 40
    model = nn.Sequential(AddSteps(), *tiny())
    prune(model, data, ridge="auto", method=method, batch=batch, stages=2, recover=False)


class AddSteps(nn.Module):
    """Over sequences of any length."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1)


@pytest.mark.parametrize("size", [1, 3, 4, 13, 26])
def test_it_does_not_matter_how_the_samples_are_batched(size: int) -> None:
    together, apart = tiny(), tiny()
    prune(together, Again([points(26)]), batch=4, recover=False)
    prune(apart, Again(cut(points(26), size)), batch=4, recover=False)
    assert torch.equal(Weights(apart).vector(), Weights(together).vector())
