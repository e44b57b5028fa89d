"""Data in any form, in every function that reads them and in every kind of run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import chita
from chita.model.accuracy import accuracy
from chita.model.samples.arrays import InputSpec
from chita.model.samples.batch import parse_batch
from chita.model.samples.batches import SIZE
from tests.pruning.test_resume_data import interrupted, resume
from tests.support.given_forms import (
    BATCHES,
    EXPECTED,
    KEYWORDS,
    Points,
    X,
    Y,
    as_read,
    in_order,
    pruned,
)
from tests.support.messages import naming, says
from tests.support.pruning import (
    Again,
    Snapshot,
    points,
    prune_quietly,
    same,
    snapshot,
    tiny,
)


def test_inputs_alone_are_distilled(caplog: pytest.LogCaptureFixture) -> None:
    # A random direction belongs to the number of a sample, which a list counts in its own order.
    expected = pruned(Again(as_read((X,))), loss="distill")
    model = tiny()
    result = prune_quietly(model, X.numpy(), **KEYWORDS)
    assert result.config.loss == "distill"
    assert says(caplog.text, "loss='distill'", "inputs")
    assert same(snapshot(model), expected)
    for data in (X, TensorDataset(X), Points(lambda x, y: x), Points(lambda x, y: (x,))):
        assert same(pruned(data), expected)
    batches = [x for x, _ in BATCHES]
    for batched in ([(x,) for x in batches], [x.numpy() for x in batches], batches):
        assert same(pruned(batched), pruned(batches, loss="distill"))
    loader: Any = DataLoader(TensorDataset(X), 16)
    assert same(pruned(loader), pruned(DataLoader(TensorDataset(X, Y), 16), loss="distill"))


def test_inputs_alone_in_every_function(caplog: pytest.LogCaptureFixture) -> None:
    curves = [
        chita.sensitivity(tiny(), data, loss=loss, sparsities=[0.5]).layers
        for data, loss in ((X.numpy(), None), (X, "distill"))
    ]
    assert curves[0] == curves[1]
    assert says(caplog.text, "loss='distill'")
    losses = []
    for data in (X.numpy(), X, (X, Y), TensorDataset(X, Y)):
        model = tiny()
        pruned([], model, method="magnitude", ridge=0.01)
        found = chita.recover(model, data, teacher=tiny(), budget="4 steps", progress=False)
        losses.append(found.loss_after)
    assert len(set(losses)) == 1


def test_a_peek_does_not_change_a_shuffled_order() -> None:
    def shuffled(data: Any, loss: str | None) -> Snapshot:
        generator = torch.Generator().manual_seed(5)
        torch.manual_seed(6)
        loader = DataLoader(data, 16, shuffle=True, generator=generator)
        return pruned(loader, loss=loss)

    data = TensorDataset(X, Y)
    assert same(shuffled(data, None), shuffled(data, "cross_entropy"))


def test_held_out_samples() -> None:
    other = points(60, seed=1)
    expected = pruned(in_order((X, Y)), held_out=in_order(other))
    arrays = tuple(array.numpy() for array in other)
    assert same(pruned((X.numpy(), Y.int().numpy()), held_out=arrays), expected)


def test_recovery_and_accuracy() -> None:
    found = []
    for data in (in_order((X, Y)), (X.numpy(), Y.int().numpy()), Points()):
        model = tiny()
        chita.prune(model, data, sparsity=0.5, budget="6 steps", progress=False)
        found.append(snapshot(model))
        assert accuracy(model, (X.numpy(), Y.numpy()[:, None])) == accuracy(model, [(X, Y)])
    assert same(found[0], found[1])
    assert same(found[0], found[2])


def test_a_generator_without_end(tmp_path: Path) -> None:
    """No call reads all that it yields, not even until the memory is full."""

    def generate() -> Iterator[tuple[Tensor, Tensor]]:
        for seed in range(100):
            yield points(4096, seed=seed)
        raise AssertionError("it is read without end")

    for options in ({"budget": "4 steps"}, {"method": "chita-bso", "checkpoints": tmp_path}):
        chita.prune(tiny(), generate, sparsity=0.5, samples=8, progress=False, **options)
    model = tiny()
    pruned([], model, method="magnitude", ridge=0.01)
    chita.recover(model, generate, teacher=tiny(), budget="4 steps", progress=False)
    assert chita.sensitivity(tiny(), generate, sparsities=[0.5], samples=100).samples == 100


def test_augmentation_in_a_data_set(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    pruned(Points(lambda x, y: (x + torch.randn(6, dtype=x.dtype), y)))
    assert says(caplog.text, "batches", "held_out=")


def test_a_mapped_file_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    read: list[int] = []
    whole = np.asarray

    def watched(array: Any, *args: Any, **keywords: Any) -> Any:
        found = whole(array, *args, **keywords)
        read.append(len(found) if found.ndim else 1)
        return found

    monkeypatch.setattr(np, "asarray", watched)
    assert same(pruned((mapped, Y.numpy())), EXPECTED)
    assert max(read) == SIZE


def test_arrays_share_their_memory() -> None:
    x, y = X.numpy(), Y.numpy()
    content: Any = parse_batch(0, (x, y), InputSpec.of(tiny())).content
    assert content[0][0].data_ptr() == x.ctypes.data
    assert content[1].data_ptr() == y.ctypes.data


def test_an_interrupted_run_is_resumed_with_its_own_arrays(tmp_path: Path) -> None:
    data = (X.numpy(), Y.numpy())
    interrupted(tmp_path, data, ridge="auto")
    for other in ((X.numpy() + 1, Y.numpy()), (X.numpy(), (Y.numpy() + 1) % 3)):
        with pytest.raises(chita.ChitaError, match=naming("stage.safetensors", "data")):
            resume(tmp_path, other, ridge="auto")
    assert resume(tmp_path, TensorDataset(X, Y), ridge="auto")
