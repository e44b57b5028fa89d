"""Data of a user whose errors name the reference of the data.

The code of a user runs whenever samples are read, which is anywhere in a command.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from chita.model.samples.arrays import is_array
from chita.references.call import failing_as


def named_passes(text: str, start: Callable[[], Iterable[Any]]) -> Callable[[], Iterator[Any]]:
    """Return a function that starts a pass over data, whose errors name their reference.

    Args:
        text: the reference.
        start: starts a pass, such as a generator function.
    """

    @wraps(start)
    def one_pass() -> Iterator[Any]:
        with failing_as(text):
            yield from start()

    return one_pass


def named_data(text: str, given: Any) -> Any:
    """Return data whose errors name their reference, in a form that is read in the same way.

    Arrays and lists raise no errors, and those of a data set name the sample already. A loader that
    changes its data set in the workers stays as it is.
    """
    if isinstance(given, DataLoader):
        return given if given.worker_init_fn is not None else _named_loader(text, given)
    if isinstance(given, IterableDataset):  # which has an unused __getitem__
        return named_passes(text, lambda: given)
    by_index = is_array(given) or hasattr(given, "__getitem__")
    return (
        given if by_index or not isinstance(given, Iterable) else named_passes(text, lambda: given)
    )


def _named_loader(text: str, loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a copy of a loader with a data set whose errors name the reference."""
    named = copy.copy(loader)
    kind = _NamedStream if isinstance(loader.dataset, IterableDataset) else _NamedSamples
    vars(named)["dataset"] = kind(text, loader.dataset)  # DataLoader refuses to set it otherwise
    return named


class _NamedSamples(Dataset[Any]):
    """A data set that is read by index."""

    def __init__(self, text: str, samples: Any) -> None:
        self._text, self._samples = text, samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: Any) -> Any:
        with failing_as(self._text):
            return self._samples[index]

    def __getitems__(self, indices: Sequence[Any]) -> Any:
        """Return several samples, which some data sets read faster at once."""
        together = getattr(self._samples, "__getitems__", None)
        with failing_as(self._text):
            return [self._samples[i] for i in indices] if together is None else together(indices)


class _NamedStream(IterableDataset[Any]):
    """A data set that is read from its beginning."""

    def __init__(self, text: str, samples: Any) -> None:
        self._text, self._samples = text, samples

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[Any]:
        with failing_as(self._text):
            yield from self._samples
