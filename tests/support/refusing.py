"""What chita.prune refuses, without a change of the model."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

import chita
from chita import ChitaError
from tests.support.pruning import STAGED, cut, points, same, snapshot, tiny

NAN, INF = float("nan"), float("inf")


def refuse(
    message: str, *, model: Any = None, batches: Any = None, given: bool = True, **keywords: Any
) -> None:
    """prune(model, batches, **keywords) is an error, and the model is what it was before.

    Both for CHITA++ and for auto, unless a method is named.
    """
    model = batch_normed() if model is None else model
    batches = cut(points(24), 5) if batches is None and given else batches
    is_module = isinstance(model, nn.Module)
    before = snapshot(model) if is_module else {}
    flags = [module.training for module in model.modules()] if is_module else []
    defaults: dict[str, Any] = {"sparsity": 0.5, "batch": 2, "stages": 2, "progress": False}
    for method in [keywords.pop("method")] if "method" in keywords else STAGED:
        with pytest.raises(ChitaError, match=message):
            chita.prune(model, batches, method=method, **{**defaults, **keywords}, recover=False)
        if is_module:
            assert same(snapshot(model), before)
            assert [module.training for module in model.modules()] == flags


def batch_normed() -> nn.Sequential:
    """tiny() with buffers, of which one layer is in eval mode."""
    model = nn.Sequential(*tiny(), nn.BatchNorm1d(3)).double().train()
    model[1].eval()
    return model
