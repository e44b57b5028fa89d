"""Data that cannot be meant, or may be meant in two ways: the error has the line to write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from chita.errors import ChitaError
from chita.model.losses import mean_loss
from chita.model.samples.arrays import InputSpec
from chita.model.samples.batch import Batch
from chita.model.samples.given_data import are_inputs_alone, as_batches, read_batches
from tests.support.messages import naming
from tests.support.pruning import Again, points, tiny

X, Y = points(20)
x, y = X.numpy(), Y.numpy()


def read(given: Any, labelled: bool | None = None, model: nn.Module | None = None) -> list[Any]:
    """All batches, as they are parsed."""
    model = model or tiny()
    spec = InputSpec.of(model)
    return list(read_batches(model, iter(as_batches(given, spec, seed=0, labelled=labelled))))


class Table:
    """What chita sees of a table of pandas."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values

    def __iter__(self) -> Iterator[str]:
        return iter(["age", "label"])

    def __getitem__(self, column: str) -> Any:
        raise KeyError(column)

    def __len__(self) -> int:
        return len(self.values)

    def to_numpy(self) -> Any:
        return self.values


class Broken(Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> Any:
        if i == 17:
            raise FileNotFoundError("17.png")
        return X[i], Y[i]


class Endless(Dataset[Any]):
    def __getitem__(self, i: int) -> Any:
        return X[i % 20], Y[i % 20]


class Picture:
    """What chita sees of an image of Pillow."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        raise NotImplementedError


class Returning(Broken):
    def __init__(self, item: Any) -> None:
        self.item = item

    def __getitem__(self, i: int) -> Any:
        return self.item


def generate(count: int = 3) -> Iterator[Any]:
    yield from [(X, Y)] * count


OBJECTS = np.array([1, "a", None, 2.5] * 5, dtype=object)
WRONG: dict[str, tuple[Any, list[object]]] = {
    "None": (None, ["batches", "NoneType", "DataLoader", "lambda: generate()"]),
    "a number": (5.0, ["batches", "float", "(X, y)"]),
    "a NumPy number": (np.float32(5), ["batches", "float32"]),
    "a string": ("mnist", ["batches", "str"]),
    "a module": (tiny(), ["batches", "Sequential"]),
    "no dimension": (np.array(5.0), ["batches[0]"]),
    "numbers": ([1, 2, 3], ["batches", "numbers"]),
    "objects": ((OBJECTS, y), ["batches[0]", "object", ".astype('float32')"]),
    "arrays in objects": ((np.array([*x, None], object)[:20], y), ["batches[0]", "np.stack"]),
    "strings": ((x, np.array(["cat", "dog"] * 10)), ["batches[1]", "np.unique"]),
    "a list of strings": ((x, ["cat", "dog"] * 10), ["batches[1]", "str"]),
    "dates": ((x, np.zeros(20, "datetime64[D]")), ["batches[1]", "datetime64[D]"]),
    "records": ((np.zeros(20, [("age", "f4")]), y), ["batches[0]", "age"]),
    "a huge number": ((x, [10**30] * 20), ["batches[1]", "object"]),
    "ragged lists": (([[1.5] * (1 + i % 3) for i in range(20)], y), ["batches[0]", "1 to 3"]),
    "lengths": ((x, y[:19]), ["batches[0]", 20, "batches[1]", 19]),
    "lengths in a dict": ({"a": x, "b": y[:5]}, ["batches['a']", 20, "batches['b']", 5]),
    "masked entries": ((np.ma.masked_array(x, x > 1), y), ["batches[0]", "filled"]),
    "an empty dict": ({}, ["batches", "no arrays", "{}"]),
    "a table": (Table(x), ["batches", "Table", ".to_numpy()"]),
    "a table of objects": ((Table(OBJECTS), y), ["batches[0]", "object"]),
    "a sparse tensor": ((X.to_sparse(), Y), ["batches[0]", "sparse", ".to_dense()"]),
    "a dict of data sets": ({"train": Broken()}, ["batches['train']", "Broken"]),
    "a data set that fails": (Broken(), ["sample 17", "Broken", "FileNotFoundError", "17.png"]),
    "a data set without a length": (Endless(), ["batches", "Endless", "__len__"]),
    "a data set of None": (Returning(None), ["sample", "NoneType"]),
    "a data set of images": (Returning((Picture(), 1)), ["Picture", "ToTensor()"]),
    "texts": ([("a cat", 0), ("a dog", 1)], ["part 0", "str", "tokenize"]),
    "texts alone": (["a cat", "a dog"], ["batches", "a cat", "tokenize"]),
    "shapes": ([(X[0], 0), (X[0, :5], 1)], ["(6,)", "(5,)"]),
    "types": ([(X[0], 0), ("a", 1)], ["Tensor", "str"]),
    "parts": ([(X[0], 0), (X[1],)], ["2 parts"]),
    "keys": ([{"a": X[0], "label": 0}, {"b": X[0], "label": 1}], ["keys", "a"]),
    "a generator": (generate(), ["batches", "generator", "batches=lambda: generate(...)"]),
    "a zip": (zip(X, Y, strict=True), ["batches", "zip", "batches=lambda: generate(...)"]),
    "a function with arguments": (lambda size: [], ["batches", "size", "batches=lambda:"]),
    "a function that returns nothing": (lambda: None, ["batches", "NoneType"]),
    "three tensors": (TensorDataset(X, X, Y), ["batch 0", "tuple of 3", "((a, b), targets)"]),
    "three arrays": ((x, x, y), ["batches", "tuple of 3", "((a, b), targets)"]),
    "a loader of samples": (
        DataLoader(TensorDataset(X, Y), batch_size=None),
        ["batch 0", "(6,)", "DataLoader(samples, batch_size=64)"],
    ),
}


@pytest.mark.parametrize(("given", "parts"), WRONG.values(), ids=list(WRONG))
def test_what_is_wrong(given: Any, parts: list[object]) -> None:
    with pytest.raises(ChitaError, match=naming(*parts)):
        read(given)


AMBIGUOUS: dict[str, tuple[Any, list[object]]] = {
    "arrays of one shape": ((X, X), ["(20, 6)", "[(a, b)]", "[(a,), (b,)]", "loss='mse'"]),
    "a list of them": ([x, x], ["(20, 6)", "[(a, b)]", "[(a,), (b,)]"]),
    "arrays of numbers": ((x, x[:, :2]), ["(20, 6)", "(20, 2)", "[(a, b)]"]),
    "labels with a column": ((x, x[:, :1]), ["(20, 1)", "[(a, b)]", "loss='mse'"]),
    "lists of numbers": ([[1, 2, 3], [4, 5, 6]], ["(3,)", "[(a, b)]", "[(a,), (b,)]"]),
    "pairs of numbers": ([[1, 2], [3, 4], [5, 6]], ["batches", "torch.tensor(batches)"]),
    "vectors": (list(X), ["batches", "torch.stack(batches)", "[(x,) for x in batches]"]),
    "vectors of token ids": (
        [torch.arange(3), torch.arange(4), torch.arange(5)],
        ["batches", "[x.tolist() for x in batches]"],
    ),
}


@pytest.mark.parametrize(("given", "parts"), AMBIGUOUS.values(), ids=list(AMBIGUOUS))
def test_what_may_be_meant_in_two_ways(given: Any, parts: list[object]) -> None:
    with pytest.raises(ChitaError, match=naming(*parts)):
        read(given)


def sizes(batches: list[Batch]) -> list[int]:
    return [batch.size for batch in batches]


def test_the_loss_decides_between_targets_and_inputs() -> None:
    """With a loss that uses targets, two arrays are inputs and targets; else two batches."""
    (both,) = read((X, X), labelled=True)
    assert torch.equal(both.content[0][0], both.content[1])
    spec = InputSpec.of(tiny())
    assert as_batches(alone := [X, X], spec, labelled=False) is alone
    assert as_batches(parts := X.split(11), spec, labelled=None) is parts  # (11, 6) and (9, 6)


def test_what_has_no_targets() -> None:
    model = tiny()
    for given in (X, x, [X, X, X], [(X,)], Again([x]), DataLoader(TensorDataset(X), 4), lambda: X):
        assert are_inputs_alone(model, given)
    for given in ((X, Y), [(X, Y)], Again([(x, y)]), Broken(), [], {"x": X}, [{"x": X}]):
        assert not are_inputs_alone(model, given)


def test_labels_of_other_types() -> None:
    model, expected = tiny(), mean_loss(tiny(), [(X, Y)])
    kinds: list[Any] = [np.int8, np.int16, np.int32, np.uint8, np.uint32, np.uint64]
    for kind in kinds:
        assert mean_loss(model, (x, y.astype(kind))) == pytest.approx(expected)
        assert mean_loss(model, [(x, y.astype(kind)[:, None])]) == pytest.approx(expected)
    truth = Y > 0
    assert mean_loss(model, (X, truth)) == mean_loss(model, (X, truth.long()))


@pytest.mark.parametrize(
    ("targets", "parts"),
    [
        (y * 0 + 5, ["labels", 0, 2, 5]),
        (y * 0 - 7, ["labels", 0, 2, -7]),
        (y.astype(float), ["(20,)", ".astype('int64')", "loss='mse'"]),
        (np.where(y == 0, np.nan, y), ["(20,)", ".astype('int64')"]),
        (np.eye(3, dtype=int)[y], ["(20, 3)", "loss='mse'"]),
    ],
)
def test_labels_that_the_cross_entropy_does_not_take(targets: Any, parts: list[object]) -> None:
    with pytest.raises(ChitaError, match=naming(*parts)):
        mean_loss(tiny(), (X, targets))


def test_inputs_of_another_type() -> None:
    with pytest.raises(ChitaError, match=naming("(20, 6)", "torch.uint8", "torch.float64")):
        mean_loss(tiny(), ((x * 20).astype(np.uint8), y))
    for kind in (np.float16, np.float32, np.longdouble):
        found = mean_loss(tiny(), (x.astype(kind), y))
        assert found == pytest.approx(mean_loss(tiny(), (X, Y)), rel=1e-2)


class Reader(nn.Module):
    """A network of token ids; padding counts unless the mask excludes it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = torch.ones_like(ids) if attention_mask is None else attention_mask
        inside: Tensor = self.embedding(ids) * mask[..., None]
        out: Tensor = self.layer(inside.sum(1) / mask.sum(1, keepdim=True))
        return out


class Maskless(Reader):
    def forward(self, ids: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(ids)


TEXTS = [[1 + (i * j) % 19 for j in range(2 + i % 5)] for i in range(30)]
CLASSES = [i % 3 for i in range(30)]
TOKENS: dict[str, Any] = {
    "a pair": (TEXTS, CLASSES),
    "samples": list(zip(TEXTS, CLASSES, strict=True)),
    "samples of tensors": [(torch.tensor(t), c) for t, c in zip(TEXTS, CLASSES, strict=True)],
    "batches": [(TEXTS[:10], CLASSES[:10]), (TEXTS[10:], CLASSES[10:])],
    "keywords": [({"ids": TEXTS}, CLASSES)],
    "keywords and masks": [
        ({"ids": TEXTS, "attention_mask": [[1] * len(t) for t in TEXTS]}, CLASSES)
    ],
}


@pytest.mark.parametrize("given", TOKENS.values(), ids=list(TOKENS))
def test_token_ids_of_different_lengths(given: Any) -> None:
    torch.manual_seed(0)
    model = Reader()
    each = [
        mean_loss(model, [(torch.tensor([t]), torch.tensor([c]))]) for t, c in TOKENS["samples"]
    ]
    assert mean_loss(model, given) == pytest.approx(sum(each) / len(each))
    with pytest.raises(
        ChitaError, match=naming("lists of 2 to 6", "attention_mask", "pad_sequence")
    ):
        mean_loss(Maskless(), given)


def test_token_ids_alone() -> None:
    assert are_inputs_alone(Reader(), TEXTS)
    (batch,) = as_batches(TEXTS, InputSpec.of(Reader()), labelled=None)
    assert [part.keys() for part in batch] == [{"ids", "attention_mask"}]
    assert batch[0]["attention_mask"].sum(1).tolist() == [len(text) for text in TEXTS]
    equal = [[*text[:2], 5] for text in TEXTS]
    (batch,) = as_batches(equal, InputSpec.of(Maskless()), labelled=None)
    assert batch[0].tolist() == equal


def test_padding_of_token_labels_is_ignored() -> None:
    rows = [{"input_ids": text, "labels": text} for text in TEXTS]

    class Tagger(Reader):
        def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None) -> Any:  # type: ignore[override]
            raise NotImplementedError

    model = Tagger()
    model.config = type("Config", (), {"pad_token_id": 7})()  # type: ignore[assignment]
    (batch,) = as_batches(rows, InputSpec.of(model))
    outside = batch["attention_mask"] == 0
    assert batch["labels"][outside].unique().tolist() == [-100]
    assert batch["input_ids"][outside].unique().tolist() == [7]
