"""The precision of the solvers: that of their tensors, whatever the caller has allowed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


@contextmanager
def own_precision() -> Iterator[None]:
    """Compute in the types of the tensors, without autocast and without TF32.

    In a torch.autocast of the caller, products would run in bfloat16, and some of them fail in it.
    With torch.set_float32_matmul_precision("high"), a GPU would round the factors of float32
    products to 10 bits, but the solvers rely on the rounding errors of float32.
    """
    with ExitStack() as off:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                off.enter_context(torch.autocast(kind, enabled=False))
        off.enter_context(_exact_products())
        yield


@contextmanager
def _exact_products() -> Iterator[None]:
    """Multiply float32 matrices in float32."""
    name, backends = _precision_name(), _backends()
    before = [backend.fp32_precision for backend in backends]
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        if name is not None:
            torch.set_float32_matmul_precision(name)
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision


def _precision_name() -> str | None:
    """Return "highest", "high" or "medium"; None if the backends were set to different values."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _backends() -> list[Any]:
    """Return the settings of single backends, which torch has had since version 2.9."""
    parts = (getattr(each, "matmul", None) for each in (torch.backends.cuda, torch.backends.mkldnn))
    return [part for part in parts if hasattr(part, "fp32_precision")]
