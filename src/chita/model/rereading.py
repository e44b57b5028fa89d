"""Whether a loader gives the same samples each time it is read.

Samples are kept out of A by their content. Random augmentation gives a sample another content each
time, so that nothing tells it from a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from chita.batch import Batch
from chita.data.dataset import Batches
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
    keys = SampleKeys(seed=0)
    if isinstance(batches, DataLoader) and not isinstance(batches.dataset, IterableDataset):
        fetched = _first_indices(batches)
        passes = [[_fetch(batches, index) for index in fetched] for _ in range(2)]
    else:
        passes = [list(islice(iter(batches), 1)) for _ in range(2)]
    one, other = ([keys.of(parse(i, given)) for i, given in enumerate(read)] for read in passes)
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def known_size(batches: Iterable[Any], parse: Parse) -> int | None:
    """Return the number of samples in a pass; None if only reading the pass would tell."""
    if isinstance(batches, Batches):
        return batches.samples
    if isinstance(batches, (list, tuple)):
        return sum(parse(number, given).size for number, given in enumerate(batches))
    if isinstance(batches, DataLoader) and batches.batch_size is not None:
        sampler = batches.sampler
        every = isinstance(sampler, SequentialSampler) or (
            isinstance(sampler, RandomSampler) and not sampler.replacement
        )
        return len(sampler) if every and isinstance(sampler, Sized) else None
    return None


def _first_indices(loader: DataLoader[Any]) -> list[Any]:
    """Return what the sampler draws for the first batches, of `COMPARED` samples or more."""
    if loader.batch_sampler is None:
        return list(islice(iter(loader.sampler), 1))
    return list(_until(iter(loader.batch_sampler), COMPARED))


def _until(indices: Iterator[list[Any]], samples: int) -> Iterator[list[Any]]:
    for batch in indices:
        yield batch
        samples -= len(batch)
        if samples <= 0:
            return


def _fetch(loader: DataLoader[Any], index: Any) -> Any:
    """Make the batch of some indices as the loader does, in this process."""
    data = loader.dataset
    if loader.batch_sampler is None:
        return loader.collate_fn(data[index])
    if hasattr(data, "__getitems__"):
        return loader.collate_fn(data.__getitems__(index))
    return loader.collate_fn([data[i] for i in index])
