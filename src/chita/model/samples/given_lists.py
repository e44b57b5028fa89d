"""What a list or a tuple means: batches, samples, or the inputs and targets of all samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from chita.errors import ChitaError
from chita.model.samples.arrays import InputSpec, as_array, is_array, is_scalar, list_depth
from chita.model.samples.batch import Batch, describe
from chita.model.samples.batches import ArrayBatches, RowBatches
from chita.model.samples.rows import is_row


def must_be_data(name: str, given: Any) -> str:
    """Return an error message about a value that is not data."""
    return (
        f"{name} must be a DataLoader or a list of batches (inputs, targets) or of dicts, a pair "
        "of arrays (X, y), a Dataset, or a function that starts a pass, as in "
        f"{name}=lambda: generate(); got {describe(given)}"
    )


def from_list(
    given: list[Any] | tuple[Any, ...],
    spec: InputSpec,
    name: str,
    seed: int | None,
    labelled: bool | None,
) -> Iterable[Any]:
    """Return the batches of a list of batches, a pair of whole arrays or a list of samples."""
    if not given or isinstance(given[0], Batch):
        return given
    first = given[0]
    if len(given) == 2:
        pair = tuple(np.asarray(x) if is_table(x) else x for x in (given[0], given[1]))
        if _is_whole_pair(pair, isinstance(given, tuple), name, labelled):
            return ArrayBatches(whole(pair, name), spec, seed, name)
    if is_scalar(first):
        raise ChitaError(f"{must_be_data(name, given)} single numbers")
    if is_array(first):
        _check_inputs(given, name)
    elif list_depth(first) == 1 and all(isinstance(row, list) and len(row) == 2 for row in given):
        raise ChitaError(
            f"{name} is {describe(given)} lists of two numbers, which may be samples (x, y) or "
            f"token ids; pass [(x, y) for x, y in {name}], or torch.tensor({name}) for token ids"
        )
    # A single sample serves no purpose: it is rather a batch with a wrong target.
    samples = is_row(first) and len(given) > 1
    return RowBatches(given, spec, seed, name) if samples else given


def _check_inputs(arrays: list[Any] | tuple[Any, ...], name: str) -> None:
    """Raise a ChitaError unless arrays can be batches of inputs alone."""
    for i, other in enumerate(arrays):
        if not is_array(other):
            items = f" {type(other[0]).__name__}" if isinstance(other, list) and other else ""
            hint = f"; pass {name}[0] if there are no targets" if other is None else ""
            raise ChitaError(
                f"{name}[{i}] must be an array of numbers, as {name}[0] is, got "
                f"{describe(other)}{items}{hint}"
            )
    if len({(np.ndim(array), _kind(array)) for array in arrays}) > 1:
        raise ChitaError(
            f"{name} is {describe(arrays)} arrays of different kinds; pass several inputs of the "
            "model as one, as in ((a, b), targets)"
        )
    if np.ndim(arrays[0]) == 1:
        stacked = len({len(array) for array in arrays}) == 1
        line = f"torch.stack({name})" if stacked else f"[x.tolist() for x in {name}]"
        raise ChitaError(
            f"{name} is {describe(arrays)} vectors, which may be samples or batches of numbers; "
            f"pass {line} if each vector is a sample, or [(x,) for x in {name}] if it is a batch"
        )


def is_table(value: Any) -> bool:
    """Return whether a value is a table or a column of one, as of pandas."""
    return is_array(value) and hasattr(value, "to_numpy")


def _is_whole_pair(
    given: tuple[Any, ...], in_tuple: bool, name: str, labelled: bool | None
) -> bool:
    """Return whether two values are the inputs and the targets of all samples.

    Otherwise they are two batches, or two samples.
    """
    a, b = given
    if not (is_array(b) or list_depth(b)) or is_scalar(a) or is_scalar(b):
        return False
    if not (is_array(a) or list_depth(a)):  # several inputs
        return in_tuple and _are_arrays(a)
    if _dims(a) != _dims(b) or _kind(a) != _kind(b):
        return True
    tokens = list_depth(a) == list_depth(b) == 1
    if len(a) != len(b) and (tokens or not labelled):
        return False
    if labelled is not None and not tokens:
        return labelled
    raise ChitaError(
        f"{name} is a pair of {_described(a)} and {_described(b)}, which may be inputs and targets "
        "or two batches of inputs; pass [(a, b)] for inputs and targets, or name a loss that uses "
        "targets, such as loss='mse'; pass [(a,), (b,)] for two batches of inputs"
    )


def _are_arrays(nest: Any) -> bool:
    if not isinstance(nest, (tuple, list, Mapping)):
        return False
    values = nest.values() if isinstance(nest, Mapping) else nest
    return bool(values) and all(is_array(v) and np.ndim(v) > 0 for v in values)


def _dims(value: Any) -> int:
    return np.ndim(value) if is_array(value) else list_depth(value)


def _kind(value: Any) -> str:
    """Return the kind of the numbers of an array or list, as in NumPy; "i" for all integers."""
    if isinstance(value, Tensor):
        return "f" if value.is_floating_point() else "i"
    while isinstance(value, (list, tuple)):  # the first number decides
        value = value[0]
    kind = np.dtype(getattr(value, "dtype", type(value))).kind
    return "i" if kind in "biu" else kind


def _described(value: Any) -> str:
    """Describe an array or a list in an error message."""
    return f"{type(value).__name__} of shape {tuple(np.shape(value))}"


def whole(nest: Any, name: str) -> Any:
    """Return whole arrays in tuples and dicts, for `ArrayBatches`."""
    if is_table(nest):  # indices of a table would be names of its columns
        return np.asarray(nest)
    if isinstance(nest, Mapping):
        return {key: whole(value, f"{name}[{key!r}]") for key, value in nest.items()}
    if list_depth(nest):
        array = as_array(nest, name)
        return list(nest) if array is None else array
    if isinstance(nest, (list, tuple)):
        return tuple(whole(value, f"{name}[{i}]") for i, value in enumerate(nest))
    if not is_array(nest):
        raise ChitaError(
            f"{name} must be an array, got {describe(nest)}; pass a single part of a dict, such as "
            "batches['train'], or a dict of arrays with the names of the model's arguments"
        )
    return nest
