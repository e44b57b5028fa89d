"""Errors of the fast way are noticed in whichever chunk of rows they occur."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.curvature import row_filler
from chita.curvature.fisher import gradient_matrix
from chita.model.convolutions import exact_convolutions, rounds_factors
from chita.model.hooks import NotSeparableError
from chita.model.samples.batch import Batch
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.solver.matrix.in_memory import Demand, HeldTarget, Store
from chita.solver.matrix.recomputed import WindowTarget
from tests.curvature.truth import Messages, brute_force, labels, normal
from tests.support.messages import says

ROWS, CHUNK = 41, 10  # row 0 is taken by itself: four chunks follow


class Marked(nn.Module):
    """Treats samples whose first feature is above 50 in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.fc = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        marked = x[:, 0] > 50
        x = torch.cat([x[:, :1] - 100 * marked[:, None].to(x), x[:, 1:]], 1)
        logits: Tensor = self.fc(self.treat(x, marked))
        return logits

    def treat(self, x: Tensor, marked: Tensor) -> Tensor:
        raise NotImplementedError


class FunctionalForSome(Marked):
    """Uses a weight outside its module for marked samples only."""

    def treat(self, x: Tensor, marked: Tensor) -> Tensor:
        hidden: Tensor = self.inner(x).tanh()
        if marked.any():
            more = functional.linear(x, self.inner.weight).tanh()
            hidden = hidden + 0.5 * marked[:, None].to(x) * more
        return hidden


class NeverCalledForSome(Marked):
    """Calls a module only if no sample is marked, and uses its weight by hand otherwise."""

    def treat(self, x: Tensor, marked: Tensor) -> Tensor:
        if marked.any():
            return functional.linear(x, self.inner.weight, self.inner.bias).tanh()
        hidden: Tensor = self.inner(x).tanh()
        return hidden


class Capacity(Marked):
    """Serves one marked sample of a batch, as an expert with a capacity; the others get nothing.

    The choice has no gradient, so that the sum of the rows is right.
    """

    def treat(self, x: Tensor, marked: Tensor) -> Tensor:
        served = ~marked | (marked.cumsum(0) == 1)
        hidden: Tensor = self.inner(x).tanh() * served[:, None]
        return hidden


class Centred(Marked):
    """Subtracts the mean of the marked samples of a batch from them."""

    def treat(self, x: Tensor, marked: Tensor) -> Tensor:
        hidden: Tensor = self.inner(x).tanh()
        if marked.sum() > 1:
            hidden = hidden - marked[:, None] * hidden[marked].mean(0)
        return hidden


def in_chunks(width: int | None = None) -> Store:
    """Hold A, or a window of it, and take in no more than CHUNK rows at a time."""

    def store(demand: Demand) -> HeldTarget:
        target = HeldTarget(demand) if width is None else WindowTarget(demand, width)
        target.most_rows = CHUNK
        return target

    return store


def assert_noticed(
    model: nn.Module, marked: list[int], reason: tuple[str, ...], store: Store
) -> None:
    model = model.double().eval()
    x, t, weights = normal(ROWS, 4), labels(ROWS), Weights(model)
    x[marked, 0] = 100 + x[marked, 0]
    with Messages() as messages:
        found = gradient_matrix(
            model, weights, SampleStream([(x, t)]), rows=ROWS, batch=1, store=store
        )
        with torch.no_grad():
            columns = torch.cat([found.matrix.read(i, i + 1) for i in range(weights.size)])
    truth, _ = brute_force(model, weights, x, t, 1)
    torch.testing.assert_close(columns.t(), truth, rtol=1e-9, atol=1e-11)
    assert messages.texts
    assert all(says(text, *reason) for text in messages.texts)


@pytest.mark.parametrize("width", [None, 13])
@pytest.mark.parametrize("marked", [[25], [33, 35, 38]])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FunctionalForSome, ("gradients", "inner.weight", "batch")),
        (NeverCalledForSome, ("inner.weight", "module")),
    ],
)
def test_a_weight_used_outside_its_module_for_some_samples(
    kind: Callable[[], nn.Module], reason: tuple[str, ...], marked: list[int], width: int | None
) -> None:
    torch.manual_seed(1)
    assert_noticed(kind(), marked, reason, in_chunks(width))


@pytest.mark.parametrize("kind", [Capacity, Centred])
def test_samples_that_interact(kind: Callable[[], nn.Module]) -> None:
    torch.manual_seed(1)
    assert_noticed(kind(), [31, 33, 34, 36, 37, 39], "", in_chunks())


@pytest.mark.parametrize("kind", [Capacity, Centred, FunctionalForSome, NeverCalledForSome])
def test_chunks_without_such_samples_stay_fast(kind: Callable[[], nn.Module]) -> None:
    model = kind().double()
    stream = SampleStream([(normal(ROWS, 4), labels(ROWS))])
    with Messages() as messages:
        gradient_matrix(model, Weights(model), stream, rows=ROWS, batch=1, store=in_chunks())
    assert messages.texts == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_that_are_right_pass_in_any_precision(dtype: torch.dtype) -> None:
    """Rows that nearly cancel, and rows that all point the same way."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 3))
    model.to(dtype)
    x = normal(1, 16).to(dtype) + 0.01 * normal(200, 16).to(dtype)
    same, opposed = torch.zeros(200, dtype=torch.int64), torch.arange(200) % 3
    with torch.no_grad():
        model[3].weight.mul_(0.01)  # each class has a third: the rows of opposed labels cancel
    for t in (same, opposed):
        stream = SampleStream([(x, t)])
        with Messages() as messages:
            gradient_matrix(model, Weights(model, "*"), stream, rows=200, batch=1)
        assert messages.texts == []


def test_a_few_wrong_rows_are_noticed_in_half_precision() -> None:
    torch.manual_seed(1)
    model = FunctionalForSome().to(torch.bfloat16).eval()
    x, t, weights = normal(50, 4).to(torch.bfloat16), labels(50), Weights(model)
    x[[30, 35, 40, 45], 0] = 100
    with Messages() as messages:
        gradient_matrix(model, weights, SampleStream([(x, t)]), rows=50, batch=1)
    assert "inner.weight" in messages.texts[0]


@pytest.mark.parametrize(
    ("fitting", "passes", "warnings"),
    [
        (10, [10, 10, 10, 10], 0),
        (5, [10] + 8 * [5], 1),  # a chunk is repeated in halves, and later ones are halved at once
        (2, [10, 5], 2),  # halves are too large as well
    ],
)
def test_a_chunk_that_exceeds_the_memory_is_halved(
    fitting: int, passes: list[int], warnings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, write = [], row_filler.write_rows

    def limited(model: nn.Module, owners: Any, chunk: Batch, *rest: Any) -> Any:
        tried.append(chunk.size)
        if chunk.size > fitting:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return write(model, owners, chunk, *rest)

    monkeypatch.setattr(row_filler, "write_rows", limited)
    model = nn.Linear(4, 3).double()
    x, t, weights = normal(ROWS, 4), labels(ROWS), Weights(model)
    with Messages() as messages:
        found = gradient_matrix(
            model, weights, SampleStream([(x, t)]), rows=ROWS, batch=1, store=in_chunks()
        )
    assert tried == passes
    assert len(messages.texts) == warnings
    truth, _ = brute_force(model, weights, x, t, 1)
    torch.testing.assert_close(found.matrix.whole().t(), truth, rtol=1e-9, atol=1e-11)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_rows_that_seem_wrong_are_computed_without_rounded_factors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check, exact = row_filler.self_check, []

    def strict(*arguments: Any, **options: Any) -> None:
        exact.append(not rounds_factors())
        if rounds_factors():
            raise NotSeparableError("rounding errors")
        check(*arguments, **options)

    monkeypatch.setattr(row_filler, "self_check", strict)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3)).cuda()
    x, t, weights = normal(ROWS, 3, 6, 6).float().cuda(), labels(ROWS).cuda(), Weights(model)
    before = rounds_factors()
    found = gradient_matrix(
        model, weights, SampleStream([(x, t)]), rows=ROWS, batch=1, store=in_chunks()
    )
    assert exact == [False] * before + [True] * 4
    assert rounds_factors() == before
    with exact_convolutions():
        truth, _ = brute_force(model, weights, x, t, 1)
    torch.testing.assert_close(found.matrix.whole().t()[1:], truth[1:], rtol=1e-3, atol=1e-5)
