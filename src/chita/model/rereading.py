"""Whether a loader gives the same samples each time it is read.

Samples are kept out of A by their content. Random augmentation gives a sample another content each
time, so that it cannot be distinguished from a new sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from chita.data.dataset import Batches
from chita.model.batch import Batch
from chita.model.sample_keys import SampleKeys

COMPARED = 32  # samples that are read twice

Parse = Callable[[int, Any], Batch]


def order_is_fixed(batches: Iterable[Any]) -> bool:
    """Return whether every pass is known to give the same samples in the same order."""
    if isinstance(batches, Batches):
        return not batches.shuffle and batches.augment is None
    return isinstance(batches, (list, tuple))


def repeats_samples(batches: Iterable[Any], parse: Parse) -> bool:
    """Return whether every pass gives the same samples, in whatever order.

    A DataLoader over an indexed data set is judged by its first samples, fetched twice. Anything
    else that is not known must begin two passes with the same batch.

    Args:
        batches: as a user gives them.
        parse: makes a `Batch` of a given one, with its number.
    """
    if isinstance(batches, Batches):
        return batches.augment is None
    if isinstance(batches, (list, tuple)):
        return True
    if _is_plain(batches) and not isinstance(batches.dataset, IterableDataset):
        passes = _fetched_twice(batches)
    else:
        passes = (_first_with_samples(batches, parse) for _ in range(2))
    one, other = (_sorted_keys(parse(i, given) for i, given in enumerate(read)) for read in passes)
    return len(one) > 0 and torch.equal(one, other)


def known_size(batches: Iterable[Any], parse: Parse) -> int | None:
    """Return the number of samples in a pass; None if unknown without reading it."""
    if isinstance(batches, Batches):
        return batches.samples
    if isinstance(batches, (list, tuple)):
        return sum(parse(number, given).size for number, given in enumerate(batches))
    if _is_plain(batches) and batches.batch_size is not None:
        sampler = batches.sampler
        every = isinstance(sampler, SequentialSampler) or (
            isinstance(sampler, RandomSampler) and not sampler.replacement
        )
        return len(sampler) if every and isinstance(sampler, Sized) else None
    return None


def _is_plain(batches: Iterable[Any]) -> TypeGuard[DataLoader[Any]]:
    """Return whether this is a DataLoader that gives what it fetches; a subclass may change it."""
    return isinstance(batches, DataLoader) and type(batches).__iter__ is DataLoader.__iter__


def _sorted_keys(batches: Iterable[Batch]) -> Tensor:
    keys = SampleKeys(seed=0)
    found = [keys.of(batch) for batch in batches]
    return torch.cat([torch.empty(0, dtype=torch.int64), *found]).sort().values


def _first_with_samples(batches: Iterable[Any], parse: Parse) -> list[Any]:
    """Begin a pass and return its first batch that is not empty, if there is one."""
    return list(islice((given for i, given in enumerate(batches) if parse(i, given).size), 1))


def _fetched_twice(loader: DataLoader[Any]) -> Iterator[Iterable[Any]]:
    """Fetch the first samples of a pass twice, as the loader does.

    Where the loader puts other samples into a batch at each pass, the second time brings them in
    batches of half the size: padding to the longest sample of a batch, without an attention mask,
    then changes the keys.
    """
    # Workers get a new seed in each pass, and the global generator stays as it is.
    generator = torch.Generator()
    options: dict[str, Any] = {
        "collate_fn": loader.collate_fn,
        "generator": generator,
        "multiprocessing_context": loader.multiprocessing_context,
        "num_workers": min(loader.num_workers, 1),
        "worker_init_fn": loader.worker_init_fn,
    }
    if loader.batch_sampler is None:
        first = list(islice(loader.sampler, 1))
        for _ in range(2):
            yield DataLoader(loader.dataset, batch_size=None, sampler=first, **options)
        return
    batches = list(_until(loader.batch_sampler, COMPARED))
    yield DataLoader(loader.dataset, batch_sampler=batches, **options)
    if not _batches_are_fixed(loader):
        halves = (half for batch in batches for half in (batch[::2], batch[1::2]))
        batches = [half for half in halves if half]
    yield DataLoader(loader.dataset, batch_sampler=batches, **options)


def _batches_are_fixed(loader: DataLoader[Any]) -> bool:
    sampler = loader.batch_sampler
    return type(sampler) is BatchSampler and isinstance(sampler.sampler, SequentialSampler)


def _until(batches: Iterable[Iterable[Any]], samples: int) -> Iterator[list[Any]]:
    """Give the first batches of indices, of so many samples or more."""
    for batch in map(list, batches):
        yield batch
        samples -= len(batch)
        if samples <= 0:
            return
