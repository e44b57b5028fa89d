"""A resumed run holds out the samples that the first one did, in whatever order they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

from chita import ChitaError
from chita.pruning.resume import StageFile
from tests.support.interrupting import STAGES, interrupt_at, passes, prune
from tests.support.messages import naming
from tests.support.pruning import Watch, cut, points, tiny

KEYWORDS: dict[str, Any] = {"ridge": "auto", "samples": 8}


def shuffling(samples: tuple[Tensor, Tensor], seed: int) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(*samples), 50, shuffle=True, generator=generator)


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return 41

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, t = points(41)
        return x[index] + torch.rand(6, generator=self.generator), t[index]


def interrupted(folder: Path, batches: Any, **keywords: Any) -> Watch:
    """A run that was stopped in the middle, and what it saw."""
    model = tiny()
    watch = Watch(model)
    interrupt_at(model, passes(batches, **keywords) // 2)
    with pytest.raises(KeyboardInterrupt):
        prune(model, batches, folder, **{"recover": False, **keywords})
    done = StageFile.done(folder)
    assert done is not None and 0 < done[0] < STAGES
    return watch


def resumed(folder: Path, batches: Any, **keywords: Any) -> Watch:
    """What the rest of a run saw, but for the sample that multiply-adds are counted with."""
    model = tiny()
    watch = Watch(model)
    assert (
        len(prune(model, batches, folder, resume=True, **{"recover": False, **keywords}).stages)
        == STAGES
    )
    del watch.inputs[-1], watch.with_gradients[-1]
    return watch


def seen(watch: Watch, gradients: bool) -> set[float]:
    both = zip(watch.inputs, watch.with_gradients, strict=True)
    return {
        value for inputs, taken in both if taken == gradients for value in inputs[:, 0].tolist()
    }


@pytest.mark.parametrize("size", [41, 5000])
def test_a_loader_that_shuffles_anew(size: int, tmp_path: Path) -> None:
    """Of few samples all are divided, of many some of a share: no sample changes sides."""
    first = interrupted(tmp_path, shuffling(points(size), 1), **KEYWORDS)
    second = resumed(tmp_path, shuffling(points(size), 2), **KEYWORDS)
    rows = seen(first, True) | seen(second, True)
    held_out = seen(first, False) | seen(second, False)
    assert rows and held_out and not rows & held_out
    if size == 41:
        assert seen(first, False) == seen(second, False)


def test_other_data_in_a_loader_are_refused(tmp_path: Path) -> None:
    """Their order may differ, so that only the rule that holds them out tells."""
    interrupted(tmp_path, shuffling(points(41), 1), **KEYWORDS)
    with pytest.raises(ChitaError, match=naming("stage.safetensors", "held-out samples")):
        prune(
            tiny(),
            shuffling(points(41, seed=1), 1),
            tmp_path,
            resume=True,
            **{"recover": False, **KEYWORDS},
        )


def test_a_loader_that_draws_some_of_its_samples_is_refused(tmp_path: Path) -> None:
    """Each run would divide others, and held-out ones of one be in A of the next."""

    def drawing(seed: int) -> DataLoader[Any]:
        data, generator = TensorDataset(*points(60)), torch.Generator().manual_seed(seed)
        return DataLoader(data, 7, sampler=RandomSampler(data, False, 41, generator))

    interrupted(tmp_path, drawing(1), **KEYWORDS)
    with pytest.raises(ChitaError, match=naming("stage.safetensors", "held-out samples")):
        prune(tiny(), drawing(2), tmp_path, resume=True, **{"recover": False, **KEYWORDS})


def test_augmented_samples_need_others_that_are_held_out(tmp_path: Path) -> None:
    def augmenting(seed: int) -> DataLoader[Any]:
        return DataLoader(Augmented(seed), 7, shuffle=True)

    held_out = cut(points(12, seed=3), 5)
    with torch.random.fork_rng():
        interrupted(tmp_path / "kept", augmenting(1), **KEYWORDS)
        with pytest.raises(ChitaError, match=naming("stage.safetensors", "data")):
            prune(
                tiny(),
                augmenting(2),
                tmp_path / "kept",
                resume=True,
                **{"recover": False, **KEYWORDS},
            )
        interrupted(tmp_path / "new", augmenting(1), held_out=held_out, **KEYWORDS)
        watch = resumed(tmp_path / "new", augmenting(2), held_out=held_out, **KEYWORDS)
    assert seen(watch, False) == {float(x) for pair in held_out for x in pair[0][:, 0]}


def test_other_held_out_samples_are_refused(tmp_path: Path) -> None:
    data = shuffling(points(41), 1)
    interrupted(tmp_path, data, held_out=[points(12, seed=3)], **KEYWORDS)
    with pytest.raises(ChitaError, match=naming("stage.safetensors", "held-out samples")):
        prune(
            tiny(),
            data,
            tmp_path,
            resume=True,
            held_out=[points(12, seed=4)],
            **{"recover": False, **KEYWORDS},
        )
