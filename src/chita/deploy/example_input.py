"""Check a user's example input, and compare the outputs that two models compute from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from chita.errors import ChitaError, describe_error
from chita.model.forward import Example, call
from chita.model.samples.batch import describe, tensors_of


def difference(found: Any, wanted: Any) -> float:
    """Return the largest difference of two outputs, relative to the largest entry of `wanted`.

    The difference is infinite if the shapes differ or if NaNs are in different places.
    """
    inf = float("inf")
    ours, theirs = _numbers(found), _numbers(wanted)
    if [tensor.shape for tensor in ours] != [tensor.shape for tensor in theirs]:
        return inf
    worst = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if one.numel():
            alike = (one == other) | (one.isnan() & other.isnan())
            gap = torch.where(alike, 0.0, (one - other).abs()).nan_to_num(inf, inf).max()
            scale = other.nan_to_num(0.0, 0.0, 0.0).abs().max()
            worst = max(worst, float(gap / scale.clamp(min=1e-30)))
    return worst


def agrees(found: Any, wanted: Any) -> bool:
    """Return whether two outputs differ only by rounding, from another order of summation."""
    return difference(found, wanted) <= rounding(wanted)


def rounding(outputs: Any) -> float:
    """Return the relative difference that another order of summation may cause.

    This is eps^(2/3) of the type: 2e-5 in float32, 1e-2 in float16 and 4e-2 in bfloat16, well
    above the rounding errors of such sums and well below a fault.
    """
    types = [tensor.dtype for tensor in tensors_of(outputs) if tensor.is_floating_point()]
    eps = max((torch.finfo(dtype).eps for dtype in types), default=0.0)
    return math.pow(eps, 2 / 3)


@torch.no_grad()
def check_example(model: nn.Module, example: Example) -> Any:
    """Return the model's outputs for a user's example; raise a ChitaError if the model fails."""
    if not tensors_of(example):
        raise ChitaError(
            "example must be a tensor, a tuple of the model's arguments or a dict of its keywords, "
            f"got {example!r}"
        )
    try:
        outputs = call(model, example)
    except Exception as error:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors_of(example)) or "none"
        raise ChitaError(
            f"the model fails on the example, with tensors of shape {shapes}: "
            f"{describe_error(error)}; give a tensor, a tuple of arguments or a dict of keywords"
        ) from error
    if not any(tensor.numel() for tensor in tensors_of(outputs)):  # any two models would agree
        raise ChitaError(
            "the model's outputs for the example have no entries; give an example with at least "
            f"one sample, and a model that returns tensors, got {describe(outputs)}"
        )
    return outputs


def arrays_of(example: Example) -> list[NDArray[np.generic]]:
    """Return the tensors of an example as contiguous arrays, which runtimes of ONNX files read.

    Raises:
        ChitaError: numpy lacks the type of a tensor, such as bfloat16.
    """
    try:
        return [tensor.detach().cpu().contiguous().numpy() for tensor in tensors_of(example)]
    except TypeError as error:
        types = sorted({str(tensor.dtype) for tensor in tensors_of(example)})
        raise ChitaError(
            "the tensors of an example for ONNX must have types of numpy, such as torch.float32, "
            f"got {', '.join(types)}"
        ) from error


def _numbers(outputs: Any) -> list[Tensor]:
    """Return the tensors of an output in double precision, on the CPU."""
    return [tensor.detach().cpu().double() for tensor in tensors_of(outputs)]
