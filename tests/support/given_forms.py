"""The same samples in several forms, and the bits that pruning with them gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from chita.model.samples.batches import SIZE
from tests.support.pruning import (
    Pairs,
    Snapshot,
    cut,
    points,
    prune_quietly,
    snapshot,
    tiny,
)

X, Y = points(150)


KEYWORDS: dict[str, Any] = {"ridge": "auto", "method": "chita++", "stages": 2, "samples": 20}


def drawn(count: int) -> Tensor:
    """The order of `count` things that seed 0 draws."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))


def as_read(arrays: tuple[Tensor, ...]) -> list[Any]:
    """The batches in which chita reads samples that are not in batches."""
    parts = [part.sort().values for part in drawn(len(arrays[0])).split(SIZE)]
    return [tuple(array[part] for array in arrays) for part in parts]


def in_order(arrays: tuple[Tensor, ...]) -> list[Any]:
    """The same batches in a list, whose order of reading is drawn, too."""
    batches = as_read(arrays)
    placed: list[Any] = [None] * len(batches)
    for place, batch in zip(drawn(len(batches)).tolist(), batches, strict=True):
        placed[place] = batch
    return placed


def pruned(batches: Any, model: nn.Module | None = None, **keywords: Any) -> Snapshot:
    model = tiny() if model is None else model
    prune_quietly(model, batches, **{**KEYWORDS, **keywords})
    return snapshot(model)


EXPECTED = pruned(in_order((X, Y)))


class Points(Dataset[Any]):
    """Samples of a data set, in the given form."""

    def __init__(self, form: Any = lambda x, y: (x, y)) -> None:
        self.form = form

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> Any:
        return self.form(X[i], Y[i])


BATCHES: Pairs = cut((X, Y), 16)


def generate() -> Iterator[Any]:
    yield from BATCHES
