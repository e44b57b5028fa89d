"""Runs that keep their stages, and models that interrupt them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from chita import PruneResult
from tests.support.pruning import Watch, prune_quietly, tiny

STAGES = 5


def prune(model: nn.Module, batches: Any, folder: Path | None, **keywords: Any) -> PruneResult:
    return prune_quietly(
        model, batches, **{"sparsity": 0.9, "stages": STAGES, "checkpoints": folder} | keywords
    )


def interrupt_at(model: nn.Module, moment: int) -> None:
    """The model stops the run at a forward pass."""
    left = moment

    def count_down(*_: Any) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1

    model.register_forward_pre_hook(count_down)


def passes(batches: Any, **keywords: Any) -> int:
    """The forward passes of an undisturbed run."""
    model = tiny()
    watch = Watch(model)
    prune(model, batches, None, **keywords)
    return len(watch.inputs)
