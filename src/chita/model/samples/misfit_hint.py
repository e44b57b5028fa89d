"""What to change if a model fails on a batch: the type of the inputs, or the keys of a dict."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from chita.model.samples.arrays import InputSpec


def misfit_hint(
    model: nn.Module,
    inputs: tuple[Any, ...] | dict[str, Any],
    tensors: Sequence[Tensor],
    error: Exception,
) -> str:
    """Return a remedy for an error message; an empty string if none is known.

    Args:
        model: the model that fails.
        inputs: its arguments, or its keyword arguments.
        tensors: all tensors of the inputs.
        error: what it raises.
    """
    return _type_hint(model, tensors, error) or _name_hint(model, inputs)


def _type_hint(model: nn.Module, tensors: Sequence[Tensor], error: Exception) -> str:
    """Return a remedy if the model fails on the data type of its inputs."""
    dtype = InputSpec.of(model).dtype
    if "type" not in str(error) or all(tensor.dtype == dtype for tensor in tensors):
        return ""
    return f"; the parameters are of type {dtype}: convert the inputs by inputs.to({dtype})"


def _name_hint(model: nn.Module, inputs: tuple[Any, ...] | dict[str, Any]) -> str:
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
