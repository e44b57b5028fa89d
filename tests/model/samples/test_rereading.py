"""Whether a loader gives the same samples again: told from what it gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from chita import data
from chita.model.samples.batch import parse_batch
from chita.model.samples.keys import known_size, order_is_fixed, repeats_samples
from tests.support.pruning import Again, cut, points

PAIRS = cut(points(100), 10)
POINTS: Dataset[Any] = TensorDataset(*points(100))
DIGITS = data.load("mnist-slice").test


def noisy(images: Tensor, generator: torch.Generator) -> Tensor:
    return images + torch.randint(2, images.shape, generator=generator, dtype=torch.uint8)


def with_noise(samples: list[Any]) -> Any:
    inputs, targets = default_collate(samples)
    return inputs + torch.randn(inputs.shape), targets


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return points(100)[0][index] + torch.randn(6), points(100)[1][index]


class Fetching(TensorDataset):
    """Gives several samples at a time."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[i] for i in indices]


class Streamed(IterableDataset[tuple[Tensor, Tensor]]):
    def __init__(self, shuffled: bool) -> None:
        self.shuffled = shuffled

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        x, t = points(100)
        order = torch.randperm(100) if self.shuffled else torch.arange(100)
        return iter([(x[i], t[i]) for i in order])


class Shuffled:
    def __iter__(self) -> Iterator[Any]:
        x, t = points(100)
        order = torch.randperm(100)
        return iter(cut((x[order], t[order]), 10))


class Texts(Dataset[Tensor]):
    """Tokens 1, 2, ... to another length each."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Tensor:
        return torch.arange(1, 2 + index)


def padded(texts: list[Tensor]) -> dict[str, Tensor]:
    """To the longest, with token 9; which places that are, a mask tells."""
    ids = pad_sequence(texts, batch_first=True, padding_value=9)
    mask = pad_sequence([torch.ones_like(text) for text in texts], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask}


def padded_only(texts: list[Tensor]) -> dict[str, Tensor]:
    return {"input_ids": padded(texts)["input_ids"]}


class InWorkers(Dataset[tuple[Tensor, Tensor]]):
    """Can be read by the workers of a loader alone, as a file that they open is."""

    def __init__(self) -> None:
        self.opened = False

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        assert self.opened
        return points(100)[0][index], points(100)[1][index]


def opening(worker: int) -> None:
    found = torch.utils.data.get_worker_info()
    assert found is not None and isinstance(found.dataset, InWorkers)
    found.dataset.opened = True


LOADERS: dict[str, tuple[Any, bool, int | None]] = {  # does it repeat, and how many are in a pass
    "a list": (PAIRS, True, 100),
    "a tuple": (tuple(PAIRS), True, 100),
    "batches": (data.Batches(DIGITS, 10, limit=30), True, 30),
    "shuffled batches": (data.Batches(DIGITS, 10, shuffle=True), True, len(DIGITS)),
    "augmented batches": (data.Batches(DIGITS, 10, augment=noisy), False, len(DIGITS)),
    "a loader": (DataLoader(POINTS, 8), True, 100),
    "a shuffling loader": (DataLoader(POINTS, 8, shuffle=True), True, 100),
    "single samples": (DataLoader(TensorDataset(*points(100)), 1), True, 100),
    "fetched together": (DataLoader(Fetching(*points(100)), 8, shuffle=True), True, 100),
    "random samples": (DataLoader(Noisy(), 8), False, 100),
    "random and shuffled": (DataLoader(Noisy(), 8, shuffle=True), False, 100),
    "random collation": (DataLoader(POINTS, 8, collate_fn=with_noise), False, 100),
    "whole batches": (
        DataLoader(PAIRS, batch_size=None, shuffle=True),  # type: ignore[arg-type]
        True,
        None,
    ),
    "drawn again": (
        DataLoader(POINTS, 8, sampler=RandomSampler(Noisy(), replacement=True)),
        True,
        None,
    ),
    "its own batches": (
        DataLoader(POINTS, batch_sampler=BatchSampler(SequentialSampler(Noisy()), 8, True)),
        True,
        None,
    ),
    "a stream": (DataLoader(Streamed(False), 8), True, None),
    "a shuffled stream": (DataLoader(Streamed(True), 8), False, None),
    "an object": (Again(PAIRS), True, None),
    "a shuffling object": (Shuffled(), False, None),
    "an object that begins empty": (
        Again([(torch.zeros(0, 6), torch.zeros(0)), *PAIRS]),
        True,
        None,
    ),
    "an empty object": (Again([]), False, None),
    "padded texts": (DataLoader(Texts(), 8, collate_fn=padded, shuffle=True), True, 60),
    "texts that are padded alike": (DataLoader(Texts(), 8, collate_fn=padded_only), True, 60),
    "texts that are not": (DataLoader(Texts(), 8, collate_fn=padded_only, shuffle=True), False, 60),
    "texts one by one": (DataLoader(Texts(), 1, shuffle=True), True, 60),
    "workers": (DataLoader(InWorkers(), 8, num_workers=2, worker_init_fn=opening), True, 100),
}


def parse(number: int, given: Any) -> Any:
    return parse_batch(number, given if isinstance(given, (dict, tuple, list)) else {"x": given})


@pytest.mark.parametrize("name", LOADERS)
def test_repeats_and_size(name: str) -> None:
    loader, repeats, size = LOADERS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert repeats_samples(loader, parse) == repeats
    assert known_size(loader, parse) == size


def test_only_lists_and_batches_have_a_fixed_order() -> None:
    fixed = {name for name, (loader, _, _) in LOADERS.items() if order_is_fixed(loader)}
    assert fixed == {"a list", "a tuple", "batches"}


class Counting(Sampler[int]):
    def __init__(self) -> None:
        self.drawn = 0

    def __iter__(self) -> Iterator[int]:
        for index in range(100):
            self.drawn += 1
            yield index


def test_few_samples_are_looked_at() -> None:
    sampler = Counting()
    assert repeats_samples(DataLoader(POINTS, 10, sampler=sampler), parse)
    assert sampler.drawn == 40


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    repeats_samples(DataLoader(POINTS, 8), parse)
    assert torch.equal(torch.get_rng_state(), before)


class NoisyLoader(DataLoader[Any]):
    """Augments what it fetches, which its data set does not show."""

    def __iter__(self) -> Any:
        for inputs, targets in super().__iter__():
            yield inputs + torch.randn_like(inputs), targets


def test_a_loader_with_an_iteration_of_its_own_is_judged_by_what_it_gives() -> None:
    data = TensorDataset(torch.arange(12.0).unsqueeze(1), torch.arange(12))
    assert repeats_samples(DataLoader(data, 4), parse_batch)
    with torch.random.fork_rng():
        assert not repeats_samples(NoisyLoader(data, 4), parse_batch)
    assert known_size(NoisyLoader(data, 4), parse_batch) is None
