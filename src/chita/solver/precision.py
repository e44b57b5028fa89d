"""The precision of the solvers: that of their tensors, also under autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def without_autocast() -> Iterator[None]:
    """Compute in the types of the tensors, also inside a torch.autocast of the caller.

    Autocast would run the products of the solvers in bfloat16, and some of them fail in it.
    """
    with ExitStack() as off:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                off.enter_context(torch.autocast(kind, enabled=False))
        yield
