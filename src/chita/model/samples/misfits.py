"""Inputs that a model does not take: the errors that they cause, and remedies for the message."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from chita.model.forward import unwrapped
from chita.model.samples.arrays import InputSpec
from chita.model.token_models import TOKENS, vocabulary_of

# The errors of functions that the samples do not fit; other errors are passed on unchanged.
MISFITS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)

Inputs = tuple[Any, ...] | dict[str, Any]


def remedy(model: nn.Module, inputs: Inputs, tensors: Sequence[Tensor], error: Exception) -> str:
    """Return what the user can do if a model fails on its inputs; empty if that is unknown.

    Args:
        model: the model.
        inputs: its arguments, or its keyword arguments.
        tensors: the tensors of the inputs.
        error: the error of the forward pass.
    """
    return (
        _token_remedy(model, inputs)
        or _type_remedy(model, tensors, error)
        or _name_remedy(model, inputs)
    )


def _token_remedy(model: nn.Module, inputs: Inputs) -> str:
    """Return a remedy if token ids are not in the vocabulary of the model."""
    vocabulary = vocabulary_of(unwrapped(model))
    ids = [] if vocabulary is None else _token_ids(inputs)
    try:
        least = min((int(tensor.min()) for tensor in ids), default=0)
        largest = max((int(tensor.max()) for tensor in ids), default=0)
    except RuntimeError:  # after such an error, a GPU returns no values
        return ""
    if vocabulary is None or (least >= 0 and largest < vocabulary):
        return ""
    return (
        f"; the token ids range from {least} to {largest}, but the vocabulary of the model has "
        f"{vocabulary} tokens, with the ids 0 to {vocabulary - 1}: pass the ids that the tokenizer "
        "of the model gives"
    )


def _token_ids(inputs: Inputs) -> list[Tensor]:
    """Return the first argument, or the keyword arguments that contain token ids."""
    first = inputs[0] if isinstance(inputs, tuple) and inputs else inputs
    given = [first.get(name) for name in TOKENS] if isinstance(first, Mapping) else [first]
    return [
        found
        for found in given
        if isinstance(found, Tensor) and found.numel() and not found.is_floating_point()
    ]


def _type_remedy(model: nn.Module, tensors: Sequence[Tensor], error: Exception) -> str:
    """Return a remedy if the model fails on the data type of its inputs."""
    dtype = InputSpec.of(model).dtype
    if "type" not in str(error) or all(tensor.dtype == dtype for tensor in tensors):
        return ""
    return f"; the parameters are of type {dtype}: convert the inputs by inputs.to({dtype})"


def _name_remedy(model: nn.Module, inputs: Inputs) -> str:
    """Return a remedy if a batch has a dict whose keys the forward pass does not take."""
    keywords = inputs[0] if isinstance(inputs, tuple) and len(inputs) == 1 else inputs
    taken = inspect.signature(model.forward).parameters
    kinds = {parameter.kind for parameter in taken.values()}
    if not isinstance(keywords, Mapping) or inspect.Parameter.VAR_KEYWORD in kinds:
        return ""
    unknown = ", ".join(repr(key) for key in keywords if key not in taken)
    if not unknown:
        return ""
    return (
        f"; a batch that is a dict gives the arguments of the model, which takes "
        f"{', '.join(taken)} and not {unknown}: rename the keys, or pass (inputs, targets)"
    )
