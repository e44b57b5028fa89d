"""Keys that identify samples by their content, and whether a loader repeats its samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
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

KEYS = 2**62  # keys are uniform in [0, KEYS)
COLUMNS = 2**14  # words that are multiplied at a time: the products take eight bytes each
MASK, DECODER = "attention_mask", "decoder_"  # keywords of Hugging Face's models
LABELS = ("label", "labels", "label_ids")


class SampleKeys:
    """Compute a key for each sample from the bits of its inputs.

    Equal inputs have equal keys; targets do not count, and neither do the labels in a dict. Tokens
    that an attention mask leaves out do not count either, so that a text keeps its key however its
    batch is padded.

    Args:
        seed: of the random multipliers. Keys of different seeds are independent of each other.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._table = torch.empty(0, dtype=torch.int64)  # the multipliers drawn so far
        # Zeros and samples without values depend on the seed as others do.
        self._start = int(self._factors(1, torch.device("cpu")))

    def of(self, batch: Batch) -> Tensor:
        """Return the keys of a batch, (size,) int64 on the CPU."""
        key = torch.full((batch.size,), self._start)
        for words, places in _words_of(batch.inputs):
            key = _mixed(key + self._product(words, places).cpu())
        return key.bitwise_and_(KEYS - 1)

    def _product(self, words: Tensor, places: Tensor | None) -> Tensor:
        """Multiply (size, c) words with random numbers, sum each row modulo 2^64: (size,)."""
        total = torch.zeros(len(words), dtype=torch.int64, device=words.device)
        for start in range(0, words.shape[1], COLUMNS):
            part = words[:, start : start + COLUMNS].to(torch.int64)
            factors = self._factors(words.shape[1], words.device)
            if places is None:
                factors = factors[start : start + COLUMNS]
            else:
                factors = factors[places[:, start : start + COLUMNS]]
            total += (part * factors).sum(1)
        return total

    def _factors(self, count: int, device: torch.device) -> Tensor:
        """Return the first `count` multipliers; longer tables begin with the shorter ones."""
        if len(self._table) < count:
            size = 1 << max(count - 1, 1).bit_length()
            generator = torch.Generator().manual_seed(self._seed)
            self._table = torch.randint(-(2**63), 2**63 - 1, (size,), generator=generator)
        self._table = self._table.to(device)
        return self._table[:count]


def _words_of(nest: Any) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Give each tensor of a nest as (size, c) integers, and the places of its words if masked."""
    if isinstance(nest, Tensor):
        yield _as_words(nest), None
    elif isinstance(nest, Mapping):
        for name in sorted(nest.keys() - LABELS, key=str):
            value = nest[name]
            mask: Any = nest.get(f"{DECODER}{MASK}" if str(name).startswith(DECODER) else MASK)
            if _is_masked(value, mask):
                seen = mask.to(torch.int64).ne(0)
                # A token counts by its rank among those that are seen, wherever padding is.
                yield value.to(torch.int64) * seen, (seen.cumsum(1) - 1).clamp_min(0)
            else:
                yield from _words_of(value)
    elif isinstance(nest, (tuple, list)):
        for value in nest:
            yield from _words_of(value)


def _is_masked(value: Any, mask: Any) -> bool:
    if not (isinstance(value, Tensor) and isinstance(mask, Tensor)):
        return False
    counts = value is mask or not value.is_floating_point()
    return counts and mask.ndim == 2 and value.shape == mask.shape


def _as_words(tensor: Tensor) -> Tensor:
    """View the bits of (size, ...) as integers, (size, c)."""
    flat = tensor.detach().reshape(len(tensor), math.prod(tensor.shape[1:])).contiguous()
    if flat.is_complex():
        flat = torch.view_as_real(flat).flatten(1)
    if flat.element_size() >= 4:
        return flat.view(torch.int32) if flat.numel() else flat.to(torch.int32)
    return flat.view(torch.int16 if flat.element_size() == 2 else torch.uint8)


def _mixed(key: Tensor) -> Tensor:
    """Spread every bit of the keys over all others (two rounds of multiply and shift)."""
    for factor in (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15):
        key = (key ^ (key >> 30)) * factor
    return key ^ (key >> 31)


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
