"""Data as people have them: each form gives the bits of the same samples in a list of batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from chita.model.samples.batches import SIZE
from tests.support.given_forms import (
    BATCHES,
    EXPECTED,
    Points,
    X,
    Y,
    drawn,
    generate,
    in_order,
    pruned,
)
from tests.support.pruning import (
    Snapshot,
    same,
    seeded,
    tiny,
)


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
