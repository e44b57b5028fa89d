"""Which calibration samples are held out: never those in A, in whatever order they come."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

from chita import ChitaError
from chita.model.samples.stream import SampleStream
from chita.pruning.calibration import divide_samples
from chita.pruning.config import PruneConfig
from tests.support.messages import naming, says
from tests.support.pruning import Watch, cut, points, tiny
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
