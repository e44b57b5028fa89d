"""Convert NumPy arrays, other arrays and lists of numbers to the tensors that a model takes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.forward import unwrapped
from chita.model.token_models import MASK, positions_at_once, predicts_tokens

IGNORED = -100  # the target that torch's cross-entropy ignores
LABELS = ("label", "labels", "label_ids")  # keywords of Hugging Face's models


@dataclass(frozen=True)
class InputSpec:
    """What a model takes, to which arrays and lists are converted.

    Attributes:
        dtype: the type of floating-point numbers; None to keep that of an array.
        tokens: the first argument of a model with an attention mask; None for other models.
        padding: the token that fills lists of token ids to one length.
        predicts: whether the labels are the tokens themselves, as for a language model.
        at_once: the positions of tokens that fit into a forward pass; None without a limit.
    """

    dtype: torch.dtype | None = None
    tokens: str | None = None
    padding: int = 0
    predicts: bool = False
    at_once: int | None = None

    @staticmethod
    def of(model: nn.Module) -> InputSpec:
        """Return what the forward pass of a model takes."""
        model = unwrapped(model)
        dtypes = (weight.dtype for weight in model.parameters() if weight.is_floating_point())
        try:
            arguments = list(inspect.signature(model.forward).parameters)
        except (TypeError, ValueError):  # some compiled modules have no signature
            arguments = []
        pad = getattr(getattr(model, "config", None), "pad_token_id", None)
        return InputSpec(
            next(dtypes, None),
            arguments[0] if MASK in arguments[1:] else None,
            pad if isinstance(pad, int) and pad >= 0 else 0,
            predicts_tokens(model),
            positions_at_once(model),
        )

    def fitting(self, positions: int, most: int) -> int:
        """Return how many samples fit into a forward pass, at most `most`.

        Args:
            positions: the tokens in a sample.
            most: the samples that are wanted.
        """
        return most if self.at_once is None else max(1, min(most, self.at_once // positions))


def is_array(value: Any) -> bool:
    """Return whether a value is a tensor or an array, as of NumPy, pandas or JAX."""
    return hasattr(type(value), "__array__") and not isinstance(value, np.generic)


def is_scalar(value: Any) -> bool:
    """Return whether a value is a number, or an array of no dimensions."""
    return isinstance(value, (Number, np.generic)) or (is_array(value) and np.ndim(value) == 0)


def list_depth(value: Any) -> int:
    """Return the depth of nested lists of numbers, such as 1 for [1, 2]; 0 for other values."""
    if not isinstance(value, (list, tuple)) or not value:
        return 0
    if all(isinstance(item, (Number, np.generic)) for item in value):
        return 1
    depth = list_depth(value[0])
    return depth + 1 if depth and all(list_depth(item) == depth for item in value[1:]) else 0


def array_tensor(array: Any, dtype: torch.dtype | None, where: str) -> Tensor:
    """Convert an array to a tensor, which shares its memory if possible.

    Args:
        array: any array; a tensor is returned unchanged.
        dtype: the type of floating-point numbers; None to keep that of the array.
        where: the place of the array in the data, for messages.

    Raises:
        ChitaError: the array does not consist of numbers.
    """
    if isinstance(array, Tensor):
        return array
    if np.ma.is_masked(array):
        raise ChitaError(f"{where} is an array with masked entries; fill them, as by x.filled(0)")
    found = np.asarray(array)
    if found.dtype.kind not in "biufc":
        raise ChitaError(f"{where} is an array of {found.dtype}, {_remedy(found.dtype.kind)}")
    if found.dtype in (np.longdouble, np.clongdouble):
        found = found.astype(np.float64 if found.dtype.kind == "f" else np.complex128)
    elif found.dtype.kind == "u" and found.dtype.itemsize > 1:  # torch computes little with these
        found = found.astype(np.int64)
    # torch shares memory only in the byte order of the machine and with forward strides, and warns
    # about memory that is read-only, such as that of a mapped file.
    found = found.astype(found.dtype.newbyteorder("="), copy=False)
    if not found.flags.writeable or min(found.strides, default=0) < 0:
        found = found.copy()
    tensor = torch.from_numpy(found)
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def _remedy(kind: str) -> str:
    if kind in "US":
        return (
            "but must consist of numbers; number the labels, as by "
            "np.unique(labels, return_inverse=True)[1], and tokenize text"
        )
    return (
        "but must consist of numbers; convert it, as by array.astype('float32') for numbers or "
        "np.stack(list(array)) for arrays of one shape"
    )


def to_tensors(nest: Any, spec: InputSpec, where: str) -> Any:
    """Convert the arrays and the lists of numbers in a nest of tuples, lists and dicts.

    Lists of token ids that differ in length become a dict of padded ids and an attention mask. What
    is neither an array nor a list is returned unchanged.

    Args:
        nest: the arguments of a model, or targets.
        spec: what the model takes.
        where: the place of the nest in the data, for messages.

    Raises:
        ChitaError: an array does not consist of numbers, or lists differ in length and the model
            has no attention mask.
    """
    if is_array(nest):
        return array_tensor(nest, spec.dtype, where)
    if isinstance(nest, Mapping):
        return _keywords(nest, spec, where)
    if list_depth(nest):
        array = as_array(nest, where)
        if array is not None:
            return array_tensor(array, spec.dtype, where)
        ids = _padded(nest, spec.padding, spec, where)
        return {str(spec.tokens): ids, MASK: _mask(nest)}
    if isinstance(nest, (list, tuple)):
        return tuple(to_tensors(item, spec, f"{where}[{i}]") for i, item in enumerate(nest))
    return nest


def batch_tensors(content: tuple[Any, ...] | Mapping[str, Any], spec: InputSpec, where: str) -> Any:
    """Convert the parts of a batch: (inputs, targets), (inputs,) or a dict; see `to_tensors`."""
    if isinstance(content, Mapping):
        return to_tensors(content, spec, where)
    return tuple(to_tensors(part, spec, f"{where}[{i}]") for i, part in enumerate(content))


def as_array(numbers: Sequence[Any], where: str) -> Any:
    """Convert nested lists of numbers to an array; return None if they differ in length."""
    try:
        return np.asarray(numbers)
    except ValueError:
        return None
    except OverflowError as error:
        raise ChitaError(f"{where} contains a number that is too large: {error}") from error


def _keywords(nest: Mapping[str, Any], spec: InputSpec, where: str) -> dict[str, Any]:
    """Convert the arguments by keyword, and add a mask if lists of token ids were padded."""
    found: dict[str, Any] = {}
    padded: Sequence[Any] = ()
    for name, value in nest.items():
        place = f"{where}[{name!r}]"
        if list_depth(value) == 2 and as_array(value, place) is None:
            padded = value
            fill = IGNORED if name in LABELS else spec.padding if name == spec.tokens else 0
            found[name] = _padded(value, fill, spec, place)
        else:
            found[name] = to_tensors(value, spec, place)
    if padded and MASK not in found:
        found[MASK] = _mask(padded)
    return found


def _mask(rows: Sequence[Sequence[Any]]) -> Tensor:
    """Return 1 at each token and 0 at each padding, (rows, longest)."""
    lengths = torch.tensor([len(row) for row in rows])
    return (torch.arange(int(lengths.max())) < lengths[:, None]).long()


def _padded(rows: Sequence[Sequence[Any]], fill: int, spec: InputSpec, where: str) -> Tensor:
    """Fill lists of token ids to one length, (rows, longest)."""
    lengths = [len(row) for row in rows]
    span = f"lists of {min(lengths)} to {max(lengths)} numbers"
    values = [value for row in rows for value in (row if list_depth(row) == 1 else [0.0])]
    flat = array_tensor(np.asarray(values), None, where)
    if flat.is_floating_point() or flat.is_complex():
        raise ChitaError(f"{where} contains {span}, which do not form an array; make them equal")
    if spec.tokens is None:
        raise ChitaError(
            f"{where} contains {span}, and the model's forward pass has no {MASK} that could mark "
            "padding; pad the lists to one length, as by torch.nn.utils.rnn.pad_sequence("
            "[torch.tensor(ids) for ids in lists], batch_first=True)"
        )
    return torch.nn.utils.rnn.pad_sequence(
        list(torch.split(flat.long(), lengths)), batch_first=True, padding_value=fill
    )
