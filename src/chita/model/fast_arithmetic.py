"""Faster arithmetic for passes that need no exact outputs: bfloat16, and images channels last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

LEAST_CAST = 100_000  # parameters: with fewer, the casts of autocast take longer than they save


def fast_arithmetic(place: torch.device, parameters: Iterable[nn.Parameter]) -> torch.autocast:
    """Return a context in which a model of float32 parameters runs in bfloat16 where that pays.

    Args:
        place: the device of the model.
        parameters: its parameters.
    """
    pays = _has_bfloat16(place) and _worth_casting(list(parameters))
    return torch.autocast(place.type, torch.bfloat16, enabled=pays, cache_enabled=False)


def _has_bfloat16(place: torch.device) -> bool:
    """Return whether a device multiplies matrices faster in bfloat16 than in float32."""
    if place.type == "cuda":
        with torch.cuda.device(place):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # PyTorch 2.4 does not report them.
    found: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


def _worth_casting(parameters: Sequence[nn.Parameter]) -> bool:
    """Return whether a model is in float32, and so large that casts take little of its time."""
    size = sum(parameter.numel() for parameter in parameters)
    return size >= LEAST_CAST and all(p.dtype == torch.float32 for p in parameters)


def fast_format(tensor: Tensor) -> Tensor:
    """Return images with their channels last, which convolutions preserve and are faster with."""
    if tensor.ndim == 4 and tensor.is_floating_point():
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor


@torch.no_grad()
def use_fast_format(model: nn.Module) -> None:
    """Store the kernels of a model on a GPU with their channels last.

    Otherwise, each forward pass of images in that format converts the kernels again. The values
    stay the same.
    """
    for parameter in model.parameters():
        if parameter.is_cuda:
            parameter.data = fast_format(parameter.data)
