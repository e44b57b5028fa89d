"""Runs that keep their stages, and models that interrupt them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from chita import PruneResult
from chita.pruning.resume import StageFile
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


def interrupt_after(model: nn.Module, folder: Path, stages: int) -> None:
    """The model stops the run at a forward pass after these stages, which the folder contains."""

    def stop(*_: Any) -> None:
        done = StageFile.done(folder)
        if done is not None and done[0] == stages:
            raise KeyboardInterrupt

    model.register_forward_pre_hook(stop)


def passes(batches: Any, **keywords: Any) -> int:
    """The forward passes of an undisturbed run."""
    model = tiny()
    watch = Watch(model)
    prune(model, batches, None, **keywords)
    return len(watch.inputs)
