"""The settings of cuDNN for convolutions: its trials of kernels, and its rounding of factors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

EXACT, ROUNDED = "ieee", "tf32"  # torch's names of the precisions of float32 products


@contextmanager
def convolution_trials(wanted: bool) -> Iterator[None]:
    """Let cuDNN time its kernels for each new input shape, and use the fastest, or not.

    The timing pays off in training, where all batches have one shape. For shapes that occur only a
    few times it costs far more than it saves.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = wanted
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def exact_convolutions(wanted: bool = True) -> Iterator[None]:
    """Let cuDNN multiply float32 in float32, or leave its setting as it is.

    By default, it rounds the factors to 10 bits (TF32), which is faster. The outputs of a sample
    then depend on the kernel, and so on the number of samples in the batch.
    """
    settings, name, exact = _rounding()
    before = getattr(settings, name)
    if wanted:
        setattr(settings, name, exact)
    try:
        yield
    finally:
        setattr(settings, name, before)


def rounds_factors() -> bool:
    """Return whether convolutions of float32 may round their factors to 10 bits."""
    settings, name, _ = _rounding()
    return getattr(settings, name) in (True, ROUNDED)


def _rounding() -> tuple[Any, str, Any]:
    """Return the object and the name of the setting, and its value without rounding."""
    convolutions = getattr(torch.backends.cudnn, "conv", None)
    if hasattr(convolutions, "fp32_precision"):  # since version 2.9
        return convolutions, "fp32_precision", EXACT
    return torch.backends.cudnn, "allow_tf32", False
