"""One input of a model: how the model is called with it, and whether two outputs are the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.batch import tensors_of
from chita.model.outputs import run_model

Example = Any  # a tensor, a tuple of the model's arguments, or a dict of its keywords


def call(model: nn.Module, example: Example) -> Any:
    """What the model gives for the example."""
    if isinstance(example, Mapping):
        return model(**example)
    return run_model(model, example if isinstance(example, tuple) else (example,))


def difference(found: Any, wanted: Any) -> float:
    """The largest difference of two outputs, in units of the largest entry of `wanted`.

    Outputs that do not compare, or hold NaN at different places, differ by infinity.
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
    """Whether two outputs are the same but for the order of the sums in them."""
    return difference(found, wanted) <= rounding(wanted)


def rounding(outputs: Any) -> float:
    """What the order of the sums may change outputs by, in units of the largest entry.

    That is eps^(2/3) for their type, 2e-5 in float32, 1e-2 in float16 and 4e-2 in bfloat16: well
    above what such sums make, and well below a fault.
    """
    types = [tensor.dtype for tensor in tensors_of(outputs) if tensor.is_floating_point()]
    eps = max((torch.finfo(dtype).eps for dtype in types), default=0.0)
    return math.pow(eps, 2 / 3)


@torch.no_grad()
def check_example(model: nn.Module, example: Example) -> Any:
    """What the model gives for an example that a user has chosen; says so if it fails."""
    if not tensors_of(example):
        raise ChitaError(
            "example must be a tensor, a tuple of the model's arguments or a dict of its keywords, "
            f"got {example!r}"
        )
    try:
        return call(model, example)
    except Exception as error:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors_of(example)) or "none"
        raise ChitaError(
            f"the model fails on the example, with tensors of shape {shapes}: {error}; give a "
            "tensor, a tuple of arguments or a dict of keywords"
        ) from error


def _numbers(outputs: Any) -> list[Tensor]:
    """The tensors of an output in double precision, on the CPU."""
    return [tensor.detach().cpu().double() for tensor in tensors_of(outputs)]
