"""The call of `chita.prune` that the benchmarks time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from torch import nn

from chita.deploy.timing import timed
from chita.model.forward import device_of
from chita.pruning.prune import prune
from chita.pruning.result import PruneResult


def timed_prune(
    model: nn.Module, batches: Iterable[Any], **arguments: Any
) -> tuple[PruneResult, float]:
    """Prune a model without a progress bar; return the result, and the seconds of the call.

    Args:
        model: the model.
        batches: the calibration batches.
        arguments: other arguments of `chita.prune`.
    """
    return timed(partial(prune, model, batches, progress=False, **arguments), device_of(model))
