"""Keys that identify samples by their content, and whether a loader repeats its samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any, Protocol, TypeGuard, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from chita.model.samples.arrays import LABELS
from chita.model.samples.batch import Batch
from chita.model.token_models import DECODER, MASK

KEYS = 2**62  # keys are uniform in [0, KEYS)
COLUMNS = 2**14  # words that are multiplied at a time: the products take eight bytes each


class SampleKeys:
    """Compute a key for each sample from the bits of its inputs.

    Equal inputs have equal keys: targets, labels in a dict and tokens outside the attention mask
    are ignored. A text therefore keeps its key when its batch is padded differently.

    Args:
        seed: the seed of the random multipliers. Keys of different seeds are independent.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._table = torch.empty(0, dtype=torch.int64)  # the multipliers drawn up to now
        # The keys of zeros and of empty samples depend on the seed, too.
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
    """Yield each tensor as (size, c) integers, and the positions of its words if it is masked."""
    if isinstance(nest, Tensor):
        yield _as_words(nest), None
    elif isinstance(nest, Mapping):
        for name in sorted(nest.keys() - LABELS, key=str):
            value = nest[name]
            mask: Any = nest.get(f"{DECODER}{MASK}" if str(name).startswith(DECODER) else MASK)
            if _is_masked(value, mask):
                seen = mask.to(torch.int64).ne(0)
                # The position of a token is its rank among those in the mask, without padding.
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


@runtime_checkable
class KnownPasses(Protocol):
    """Batches that state whether their passes repeat, as those of chita's data sets do.

    Attributes:
        samples: the number of samples in a pass.
        order_is_fixed: whether every pass gives the same samples in the same order.
        repeats_samples: whether every pass gives the same samples, in any order.
    """

    samples: int

    @property
    def order_is_fixed(self) -> bool: ...

    @property
    def repeats_samples(self) -> bool: ...


def order_is_fixed(batches: Iterable[Any]) -> bool:
    """Return whether every pass is known to give the same samples in the same order."""
    if isinstance(batches, KnownPasses):
        return batches.order_is_fixed
    return isinstance(batches, (list, tuple))


def repeats_samples(batches: Iterable[Any], parse: Parse) -> bool:
    """Return whether every pass gives the same samples, in any order.

    The first samples of a DataLoader over an indexed data set are fetched twice and compared. Of
    other iterables, the first batches of two passes are compared.

    Args:
        batches: the batches of the user.
        parse: converts a given batch, with its number, to a `Batch`.
    """
    if isinstance(batches, KnownPasses):
        return batches.repeats_samples
    if isinstance(batches, (list, tuple)):
        return True
    if is_indexed(batches):
        passes = _fetched_twice(batches)
    else:
        passes = (_first_with_samples(batches, parse) for _ in range(2))
    one, other = (_sorted_keys(parse(i, given) for i, given in enumerate(read)) for read in passes)
    return len(one) > 0 and torch.equal(one, other)


def known_size(batches: Iterable[Any], parse: Parse) -> int | None:
    """Return the number of samples in a pass; None if unknown without reading it."""
    if isinstance(batches, KnownPasses):
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


def is_indexed(batches: Iterable[Any]) -> TypeGuard[DataLoader[Any]]:
    """Return whether this is a plain DataLoader of a data set that is read by index."""
    return _is_plain(batches) and not isinstance(batches.dataset, IterableDataset)


def _is_plain(batches: Iterable[Any]) -> TypeGuard[DataLoader[Any]]:
    """Return whether this is a DataLoader whose batches no subclass changes."""
    return isinstance(batches, DataLoader) and type(batches).__iter__ is DataLoader.__iter__


def _sorted_keys(batches: Iterable[Batch]) -> Tensor:
    keys = SampleKeys(seed=0)
    found = [keys.of(batch) for batch in batches]
    return torch.cat([torch.empty(0, dtype=torch.int64), *found]).sort().values


def _first_with_samples(batches: Iterable[Any], parse: Parse) -> list[Any]:
    """Start a pass and return its first non-empty batch, if there is one."""
    return list(islice((given for i, given in enumerate(batches) if parse(i, given).size), 1))


def _fetched_twice(loader: DataLoader[Any]) -> Iterator[Iterable[Any]]:
    """Fetch the first samples of a pass twice, as the loader does.

    If the loader combines samples differently in each pass, the second fetch uses batches of half
    the size, so that padding to the longest sample without an attention mask changes the keys.
    """
    # Workers get a new seed in each pass without use of the global generator.
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
    """Yield the first batches of indices, with at least `samples` in total."""
    for batch in map(list, batches):
        yield batch
        samples -= len(batch)
        if samples <= 0:
            return
