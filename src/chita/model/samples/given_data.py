"""The data of a user, in any common form, as batches that can be read again.

Every function that takes batches reads them through `as_batches`. If the data are ambiguous, the
error contains the line of Python to write.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from chita.errors import ChitaError
from chita.model.samples.arrays import InputSpec, is_array, list_depth
from chita.model.samples.batch import Batch, parse_batch, parse_inputs
from chita.model.samples.batches import ArrayBatches, Passes, RowBatches
from chita.model.samples.fingerprint import Fingerprinted, read_chosen
from chita.model.samples.given_lists import from_list, is_table, must_be_data, whole
from chita.model.samples.keys import KnownPasses, is_indexed
from chita.model.samples.rows import is_row


def as_batches(
    given: Any,
    spec: InputSpec,
    *,
    name: str = "batches",
    seed: int | None = None,
    labelled: bool | None = True,
) -> Iterable[Any]:
    """Return the user's data as batches that can be iterated more than once.

    Args:
        given: batches, arrays, a data set, samples, or a function that starts a pass.
        spec: what the model takes.
        name: the name of the argument, for messages.
        seed: the seed of the order of samples that are not divided into batches; None for their
            own order.
        labelled: whether the loss needs targets; None if the data decide.

    Raises:
        ChitaError: the data have another form, or are ambiguous.
    """
    if isinstance(given, (DataLoader, KnownPasses, Fingerprinted)):
        return cast("Iterable[Any]", given)
    if isinstance(given, Iterator):
        raise ChitaError(_read_once(given, name))
    if isinstance(given, (list, tuple)):
        return from_list(given, spec, name, seed, labelled)
    if is_table(given):
        raise ChitaError(
            f"{name} is a {type(given).__name__}, in which inputs and targets are not marked; pass "
            "(table[inputs].to_numpy(), table[target].to_numpy())"
        )
    if is_array(given):
        return ArrayBatches((whole(given, name),), spec, seed, name)
    if isinstance(given, Mapping):
        return ArrayBatches(whole(given, name), spec, seed, name)
    if isinstance(given, (str, bytes, nn.Module)):
        raise ChitaError(must_be_data(name, given))
    if isinstance(given, Dataset) or (hasattr(given, "__getitem__") and hasattr(given, "__len__")):
        return _from_dataset(given, spec, name, seed)
    if isinstance(given, Iterable):
        return Passes(lambda: given, spec, name)
    if callable(given):
        return Passes(_started_by(given, spec, name), spec, name)
    raise ChitaError(must_be_data(name, given))


def read_batches(model: nn.Module, given: Any) -> Iterator[Batch]:
    """Read one pass over the user's data, which may be an iterator."""
    spec = InputSpec.of(model)
    batches = given if isinstance(given, Iterator) else as_batches(given, spec)
    return (parse_batch(number, batch, spec) for number, batch in enumerate(batches))


def read_inputs(model: nn.Module, given: Any) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Read the arguments of the model and the number of samples of each batch, without targets."""
    spec = InputSpec.of(model)
    batches = given if isinstance(given, Iterator) else as_batches(given, spec, labelled=False)
    return (parse_inputs(number, batch, spec) for number, batch in enumerate(batches))


def are_inputs_alone(model: nn.Module, given: Any) -> bool:
    """Return whether the batches have no targets, by the first of them.

    The keywords of a dict do not show whether it has targets: it counts as data with targets.
    """
    batches = as_batches(given, InputSpec.of(model), labelled=None)
    with torch.random.fork_rng(devices=[]):  # a loader may draw its order
        first = _first(batches)
    if isinstance(first, (tuple, list)) and len(first) == 1:
        return True
    return is_array(first) or list_depth(first) > 1


def _first(batches: Iterable[Any]) -> Any:
    """Return the first batch, or one sample of it; None if there is none."""
    if isinstance(batches, (ArrayBatches, RowBatches)):
        return batches.take(torch.arange(1)) if batches.samples else None
    if isinstance(batches, KnownPasses):  # data of chita, which have targets
        return None
    if is_indexed(batches):  # without workers, and without a draw from the sampler
        try:
            return next(iter(read_chosen(batches, [0], workers=0)), None)
        except Exception:  # the sampler may give other keys; errors of the data set come again
            return None
    return next(iter(batches), None)


def _from_dataset(given: Any, spec: InputSpec, name: str, seed: int | None) -> Iterable[Any]:
    """Return the batches of a data set, or of another object that is read by index."""
    if isinstance(given, IterableDataset):
        return Passes(lambda: given, spec, name)
    if type(given) is TensorDataset:
        return ArrayBatches(given.tensors, spec, seed, name)
    if not hasattr(given, "__len__"):
        raise ChitaError(
            f"{name} is a {type(given).__name__} without a length; define __len__, or pass "
            "DataLoader(dataset, batch_size=64, sampler=...)"
        )
    rows = RowBatches(given, spec, seed, name)
    if isinstance(given, Dataset) or (rows.samples and is_row(given[0])):
        return rows
    return Passes(lambda: (given[i] for i in range(len(given))), spec, name)


def _started_by(
    start: Callable[[], Any], spec: InputSpec, name: str
) -> Callable[[], Iterable[Any]]:
    """Return a function that starts a pass by calling the user's function."""
    try:
        inspect.signature(start).bind()
    except TypeError as error:
        raise ChitaError(
            f"{name} is a function that is called without arguments for each pass ({error}); pass "
            f"{name}=lambda: {_call_of(start)}"
        ) from error
    except ValueError:  # some built-in functions have no signature
        pass

    def made() -> Iterable[Any]:
        found = start()
        return found if isinstance(found, Iterator) else as_batches(found, spec, name=name)

    return made


def _read_once(given: Iterator[Any], name: str) -> str:
    """Return an error message about an iterator, with the line to write."""
    return (
        f"{name} is a {type(given).__name__}, which can be read only once; pass a list or a "
        f"DataLoader, or a function that starts each pass: {name}=lambda: {_call_of(given)}"
    )


def _call_of(function: Any) -> str:
    """Return a call of a function, or of the function of a generator, for messages."""
    name = getattr(function, "__name__", "generate")
    return f"{name if name.isidentifier() else 'generate'}(...)"
