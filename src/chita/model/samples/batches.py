"""Samples that are not divided into batches: whole arrays, data sets and lists of samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chita.errors import ChitaError, describe_error
from chita.model.samples.arrays import InputSpec, batch_tensors, is_array
from chita.model.samples.batch import tensors_of
from chita.model.samples.fingerprint import batches_fingerprint, places_to_compare
from chita.model.samples.rows import collate, is_row

SIZE = 64  # samples in a batch
COMPARED = 32  # samples that are read twice

Samples = Any  # arrays in tuples and dicts; a list has an item for each sample


class SampleBatches(ABC):
    """Batches of samples that are read by index, in a random order that all passes share.

    Data are often sorted by class, and a run may use only a part of them.

    Args:
        samples: the number of samples.
        spec: what the model takes.
        seed: the seed of the order; None for the order of the data.
    """

    def __init__(self, samples: int, spec: InputSpec, seed: int | None) -> None:
        self.samples, self._spec = samples, spec
        self._order = torch.arange(samples)
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
            self._order = torch.randperm(samples, generator=generator)

    @abstractmethod
    def take(self, index: Tensor) -> Any:
        """Return a batch of the samples at these places, which are in increasing order."""

    @property
    @abstractmethod
    def repeats_samples(self) -> bool:
        """Whether every pass gives the same samples."""

    @property
    def order_is_fixed(self) -> bool:
        """Whether every pass gives the same samples in the same order."""
        return self.repeats_samples

    @property
    def in_memory(self) -> bool:
        """Whether all samples can be read quickly."""
        return False

    @cached_property
    def _size(self) -> int:
        """The samples in a batch: fewer if the scores of their tokens are large."""
        if self._spec.at_once is None or not self.samples:
            return SIZE
        first = tensors_of(self.take(torch.arange(1)))
        return self._spec.fitting(max(tensor.shape[1:].numel() for tensor in first), SIZE)

    def fingerprint(self) -> str | None:
        """Return a hash of the samples; None if they differ in each pass.

        Of more than `MOST_COMPARED` samples that are not in memory, that many at equal distances
        are read.
        """
        if not self.repeats_samples:
            return None
        everything = torch.arange(self.samples)
        places = everything if self.in_memory else places_to_compare(self.samples)
        batches = (self.take(index) for index in torch.split(places, SIZE))
        return f"{self.samples} {batches_fingerprint(batches)}"

    def __iter__(self) -> Iterator[Any]:
        for index in torch.split(self._order, self._size):
            if len(index):
                yield self.take(index.sort().values)  # files are read forwards

    def index_of(self, number: int, place: int) -> int:
        """Return the index of a sample of the batch `number` of a pass."""
        return int(torch.split(self._order, self._size)[number].sort().values[place])


class ArrayBatches(SampleBatches):
    """Batches of arrays that contain all samples.

    Args:
        content: (inputs, targets), (inputs,) or a dict of keywords.
        spec: what the model takes.
        seed: as for `SampleBatches`.
        name: the name of the argument, for messages.
    """

    repeats_samples = True

    def __init__(self, content: Samples, spec: InputSpec, seed: int | None, name: str) -> None:
        self._content, self._name = content, name
        lengths = dict(_lengths(content, name))
        if not lengths:
            raise ChitaError(f"{name} has no arrays, got {content!r}")
        if len(set(lengths.values())) != 1:
            parts = ", ".join(f"{place} has {length}" for place, length in lengths.items())
            raise ChitaError(f"{name} must have the same number of samples in each array: {parts}")
        super().__init__(next(iter(lengths.values())), spec, seed)

    @property
    def in_memory(self) -> bool:
        """Whether no array is a mapped file, nor reads one."""
        return all(isinstance(a, (Tensor, list)) or type(a) is np.ndarray for a in self._arrays())

    def _arrays(self) -> list[Any]:
        found: list[Any] = []
        _map(found.append, self._content)
        return found

    def take(self, index: Tensor) -> Any:
        """Return a batch of the samples at these places; only these are read."""

        def taken(array: Any) -> Any:
            if isinstance(array, list):
                return [array[i] for i in index.tolist()]
            return array[index.to(array.device) if isinstance(array, Tensor) else index.numpy()]

        return batch_tensors(_map(taken, self._content), self._spec, self._name)


def _map(function: Callable[[Any], Any], content: Samples) -> Any:
    """Apply a function to the arrays and lists of samples."""
    if isinstance(content, Mapping):
        return {name: _map(function, value) for name, value in content.items()}
    if isinstance(content, tuple):
        return tuple(_map(function, value) for value in content)
    return function(content)


def _lengths(content: Samples, place: str) -> Iterator[tuple[str, int]]:
    """Yield the place and the number of samples of each array."""
    if isinstance(content, (Mapping, tuple)):
        items = content.items() if isinstance(content, Mapping) else enumerate(content)
        for key, value in items:
            yield from _lengths(value, f"{place}[{key!r}]")
    elif is_array(content) and np.ndim(content) == 0:
        raise ChitaError(f"{place} must have a dimension of samples, got a single number")
    elif isinstance(content, Tensor) and content.layout is not torch.strided:
        raise ChitaError(f"{place} is a sparse tensor; pass a dense one, as by x.to_dense()")
    else:
        yield place, len(content)


class RowBatches(SampleBatches):
    """Batches of single samples from a list or a data set that is read by index.

    Args:
        rows: has a length, and a sample at each index.
        spec: what the model takes.
        seed: as for `SampleBatches`.
        name: the name of the argument, for messages.
    """

    def __init__(self, rows: Any, spec: InputSpec, seed: int | None, name: str) -> None:
        self._rows, self._name = rows, name
        super().__init__(len(rows), spec, seed)

    @cached_property
    def repeats_samples(self) -> bool:
        """Whether every pass gives the same samples: not if a data set augments them."""
        if isinstance(self._rows, (list, tuple)):
            return True
        first = torch.arange(min(self.samples, COMPARED))
        one, other = (batches_fingerprint([self.take(first)]) for _ in range(2))
        return one == other

    @property
    def in_memory(self) -> bool:
        return isinstance(self._rows, (list, tuple))

    def take(self, index: Tensor) -> Any:
        """Read the samples at these places and join them to a batch."""
        return collate([self._read(i) for i in index.tolist()], self._spec, self._name)

    def _read(self, i: int) -> Any:
        try:
            return self._rows[i]
        except Exception as error:
            kind = type(self._rows).__name__
            raise ChitaError(
                f"sample {i} of {self._name}, a {kind} of {self.samples}, cannot be read: "
                f"{describe_error(error)}"
            ) from error


class Passes:
    """Passes over data that are read from the start each time, by batches or by samples.

    Args:
        start: starts a pass.
        spec: what the model takes.
        name: the name of the argument, for messages.
    """

    def __init__(self, start: Callable[[], Iterable[Any]], spec: InputSpec, name: str) -> None:
        self._start, self._spec, self._name = start, spec, name

    def __iter__(self) -> Iterator[Any]:
        items = iter(self._start())
        first = list(islice(items, 1))
        items = chain(first, items)
        if not (first and is_row(first[0])):
            yield from items
            return
        while rows := list(islice(items, SIZE)):
            yield collate(rows, self._spec, self._name)
