"""Data as people have them: each form gives the bits of the same samples in a list of batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import chita
from chita.model.accuracy import accuracy
from chita.model.arrays import InputSpec
from chita.model.batch import parse_batch
from chita.model.sample_batches import SIZE
from tests.pruning.test_resume_data import interrupted, resume
from tests.support.messages import naming, says
from tests.support.pruning import (
    Again,
    Pairs,
    Snapshot,
    cut,
    points,
    prune_quietly,
    same,
    seeded,
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


class Indexed:
    """An object that is read by index, as the data sets of Hugging Face."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        return self.rows[i]


class Column:
    """A column of a table, as in pandas."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.ndim, self.dtype, self.shape = values.ndim, values.dtype, values.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values

    def __len__(self) -> int:
        return len(self.values)

    def to_numpy(self) -> Any:
        return self.values


def read_only(tensor: Tensor) -> Any:
    array = tensor.numpy().copy()
    array.flags.writeable = False
    return array


ROWS: list[Any] = [(x, y) for x, y in zip(X, Y, strict=True)]
UNBATCHED = {
    "a pair of arrays": (X.numpy(), Y.numpy()),
    "a list of two arrays": [X.numpy(), Y.numpy()],
    "a pair of tensors": (X, Y),
    "an array and a list": (X.numpy(), Y.tolist()),
    "lists": (X.tolist(), Y.tolist()),
    "int32": (X.numpy(), Y.numpy().astype(np.int32)),
    "uint16": (X.numpy(), Y.numpy().astype(np.uint16)),
    "a column of labels": (X.numpy(), Y.numpy()[:, None]),
    "read-only": tuple(map(read_only, (X, Y))),
    "backwards": (X.numpy()[::-1].copy()[::-1], Y.numpy()),
    "big-endian": (X.numpy().astype(">f8"), Y.numpy().astype(">i4")),
    "a table": (Column(X.numpy()), Column(Y.numpy())),
    "a TensorDataset": TensorDataset(X, Y),
    "a Dataset": Points(),
    "a Dataset of arrays": Points(lambda x, y: (x.numpy(), y.item())),
    "a Dataset of lists": Points(lambda x, y: [x.tolist(), int(y)]),
    "rows": ROWS,
    "rows of arrays": [(x.numpy(), np.int16(y)) for x, y in ROWS],
    "rows of numbers": [(x.tolist(), int(y)) for x, y in ROWS],
    "rows in a tuple": tuple(ROWS),
    "read by index": Indexed(ROWS),
}


@pytest.mark.parametrize("data", UNBATCHED.values(), ids=list(UNBATCHED))
def test_samples_that_are_not_in_batches(data: Any) -> None:
    assert same(pruned(data), EXPECTED)


BATCHES: Pairs = cut((X, Y), 16)
BATCHED = {
    "arrays": [(x.numpy(), y.numpy()) for x, y in BATCHES],
    "int32": [(x, y.int()) for x, y in BATCHES],
    "int8": [(x, y.to(torch.int8)) for x, y in BATCHES],
    "a column of labels": [(x, y[:, None]) for x, y in BATCHES],
    "a column of int32": [(x.numpy(), y[:, None].int().numpy()) for x, y in BATCHES],
    "lists": [[x.tolist(), y.tolist()] for x, y in BATCHES],
    "several inputs": [([x.numpy()], y) for x, y in BATCHES],
}


@pytest.mark.parametrize("data", BATCHED.values(), ids=list(BATCHED))
def test_batches(data: Any) -> None:
    assert same(pruned(data), pruned(BATCHES))


def generate() -> Iterator[Any]:
    yield from BATCHES


def generate_rows() -> Iterator[Any]:
    yield from ROWS


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(ROWS)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (generate, 16),
        (lambda: generate(), 16),
        (lambda: BATCHES, 16),
        (lambda: ((x.numpy(), y.int().numpy()) for x, y in BATCHES), 16),
        (generate_rows, SIZE),
        (lambda: (X.numpy(), Y.numpy()), SIZE),
        (Streamed(), SIZE),
        (DataLoader(Points(), 16), 16),  # type: ignore[arg-type]
    ],
)
def test_passes_are_read_in_their_order(data: Any, size: int) -> None:
    expected = pruned(DataLoader(TensorDataset(X, Y), size))
    assert same(pruned(data), expected)


def test_floats_are_converted_to_the_type_of_the_model() -> None:
    """NumPy computes in float64, and models in float32."""
    model, other = tiny().float(), tiny().float()
    expected = pruned(in_order((X.float(), Y)), other)
    assert same(pruned((X.numpy(), Y.numpy()), model), expected)


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


def test_several_inputs_and_keywords() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = tiny()

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            out: Tensor = self.network(torch.cat([a, b], 1))
            return out

    def found(data: Any) -> Snapshot:
        return pruned(data, Two())

    a, b = X[:, :2], X[:, 2:]
    expected = found([((one, two), y) for one, two, y in in_order((a, b, Y))])
    assert same(found(((a.numpy(), b.numpy()), Y.numpy())), expected)
    assert same(found(({"a": a.numpy(), "b": b.numpy()}, Y.numpy())), expected)
    rows = [((one, two), y) for one, two, y in zip(a, b, Y, strict=True)]
    assert same(found(rows), expected)


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


def test_rows_of_keywords() -> None:
    """Samples as in a data set of Hugging Face, with token ids of different lengths."""
    transformers = pytest.importorskip("transformers")
    texts = [[1 + (7 * i + j) % 29 for j in range(2 + i % 4)] for i in range(60)]
    rows = [
        {"input_ids": text, "attention_mask": [1] * len(text), "labels": i % 3}
        for i, text in enumerate(texts)
    ]
    longest = max(map(len, texts))
    padded = {
        "input_ids": torch.tensor([text + [0] * (longest - len(text)) for text in texts]),
        "attention_mask": torch.tensor(
            [[1] * len(text) + [0] * (longest - len(text)) for text in texts]
        ),
        "labels": torch.arange(60) % 3,
    }

    def found(data: Any) -> Snapshot:
        config = transformers.BertConfig(
            vocab_size=30,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
            num_labels=3,
        )
        model = seeded(lambda: transformers.BertForSequenceClassification(config)).eval()
        return pruned(data, model, stages=1)

    order = drawn(60).sort().values
    expected = found([{name: tensor[order] for name, tensor in padded.items()}])
    for data in (rows, Indexed(rows), padded, {name: x.tolist() for name, x in padded.items()}):
        assert same(found(data), expected)
