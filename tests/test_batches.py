"""The stream of samples: what comes out is what went in, cut anew, over and over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from chita.batches import Batch, SampleStream
from chita.errors import ChitaError


def numbered(sizes: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of those sizes whose samples are numbered through."""
    numbers = torch.arange(sum(sizes))
    return [(part.float().unsqueeze(1), part) for part in numbers.split(sizes)]


def numbers_of(batch: Batch) -> list[int]:
    (inputs,), targets = batch.content
    assert inputs.squeeze(1).tolist() == targets.tolist()
    assert batch.size == len(targets)
    return targets.tolist()


@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=6).filter(any),
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=4),
)
def test_takes_go_round_the_samples_in_order(
    sizes: list[int], takes: list[tuple[int, int]]
) -> None:
    stream = SampleStream(numbered(sizes))
    expected = 0
    for count, chunk in takes:
        pieces = [numbers_of(piece) for piece in stream.take(count, chunk)]
        assert [len(piece) for piece in pieces[:-1]] == [chunk] * (len(pieces) - 1)
        flat = [number for piece in pieces for number in piece]
        assert flat == [(expected + i) % sum(sizes) for i in range(count)]
        expected += count


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any), st.integers(1, 40))
def test_count_stops_at_the_limit(sizes: list[int], limit: int) -> None:
    stream = SampleStream(numbered(sizes))
    assert stream.count(limit) == min(limit, sum(sizes))
    assert stream.count(1000) == sum(sizes)
    assert stream.count(limit) == min(limit, sum(sizes))


class Lazy:
    """Notes how many batches of two samples were asked for."""

    def __init__(self) -> None:
        self.given = 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(100):
            self.given += 1
            yield torch.zeros(2, 1), torch.zeros(2)


def test_no_more_is_read_than_is_needed() -> None:
    data = Lazy()
    stream = SampleStream(data)
    assert stream.count(5) == 5
    assert data.given == 3
    pieces = stream.take(50, 3)
    next(pieces)
    assert data.given == 3 + 2


def test_a_data_loader_works() -> None:
    loader = DataLoader(TensorDataset(torch.arange(7.0).unsqueeze(1), torch.arange(7)), 3)
    stream = SampleStream(loader)
    assert stream.count(100) == 7
    assert [numbers_of(piece) for piece in stream.take(9, 4)] == [[0, 1, 2, 3], [4, 5, 6, 0], [1]]


def test_dicts_are_joined_by_key_and_keep_what_is_no_tensor() -> None:
    first = {"ids": torch.tensor([[1], [2]]), "labels": torch.tensor([10, 20]), "cache": False}
    second = {"labels": torch.tensor([30]), "ids": torch.tensor([[3]]), "cache": False}
    (piece,) = SampleStream([first, second]).take(3, 3)
    assert isinstance(piece.content, dict)
    assert piece.content["ids"].tolist() == [[1], [2], [3]]
    assert piece.content["labels"].tolist() == [10, 20, 30]
    assert piece.content["cache"] is False


def test_nests_of_inputs_and_targets() -> None:
    given = ([torch.arange(4), torch.arange(4) + 10], {"a": torch.arange(4) + 20})
    pieces = list(SampleStream([given]).take(4, 3))
    (first, second), targets = pieces[1].content
    assert (first.tolist(), second.tolist(), targets["a"].tolist()) == ([3], [13], [23])


def test_batches_move_to_a_device() -> None:
    (piece,) = SampleStream(numbered([2])).take(2, 2)
    (inputs,), targets = piece.to(torch.device("meta")).content
    assert inputs.device.type == targets.device.type == "meta"


def test_one_shot_iterators_are_refused() -> None:
    with pytest.raises(ChitaError, match=r"generator.*only once.*list or a DataLoader"):
        SampleStream(batch for batch in numbered([2]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.zeros(2), r"batch 1 must be a pair .* got a tensor of shape \(2,\)"),
        ((torch.zeros(2), torch.zeros(2), torch.zeros(2)), "batch 1 .* got a tuple of 3"),
        ((torch.zeros(2, 3), torch.zeros(4)), r"batch 1: every tensor .* \(2, 3\), \(4,\)"),
        (([torch.zeros(2), torch.zeros(3)], torch.zeros(2)), "batch 1: every tensor"),
        ((torch.zeros(1, 2), torch.tensor(1.0)), "batch 1: every tensor"),
        ((torch.zeros(1, 2), 3), "batch 1: targets hold no tensor, got a int"),
        (({"text": "a"}), "batch 1: every tensor .* of no tensor at all"),
        ({"a": torch.zeros(2), "b": torch.zeros(3)}, "batch 1: every tensor"),
        (None, "batch 1 must be a pair"),
    ],
)
def test_bad_batches_are_named(given: object, message: str) -> None:
    batches = [(torch.zeros(2, 1), torch.zeros(2)), given]
    with pytest.raises(ChitaError, match=message):
        SampleStream(batches).count(100)
    with pytest.raises(ChitaError, match=message):
        list(SampleStream(batches).take(4, 1))


def test_not_iterable_at_all() -> None:
    with pytest.raises(ChitaError, match="got a int"):
        SampleStream(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("batches", [[], [(torch.zeros(0, 2), torch.zeros(0))]])
def test_no_samples(batches: list[object]) -> None:
    with pytest.raises(ChitaError, match="no samples"):
        SampleStream(batches).count(5)
    with pytest.raises(ChitaError, match="no samples"):
        list(SampleStream(batches).take(1, 1))


class OnlyOnce:
    """Iterable, but empty from the second time on."""

    def __init__(self) -> None:
        self.fresh = True

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if self.fresh:
            self.fresh = False
            yield torch.zeros(2, 1), torch.zeros(2)


def test_data_that_dry_up() -> None:
    with pytest.raises(ChitaError, match="no samples"):
        list(SampleStream(OnlyOnce()).take(3, 1))


@pytest.mark.parametrize(
    "other",
    [
        (torch.zeros(1, 3), torch.zeros(1)),
        {"inputs": torch.zeros(1, 2)},
        ((torch.zeros(1, 2), torch.zeros(1, 2)), torch.zeros(1)),
    ],
)
def test_samples_that_do_not_fit_together(other: object) -> None:
    with pytest.raises(ChitaError, match="cannot be joined"):
        list(SampleStream([(torch.zeros(1, 2), torch.zeros(1)), other]).take(2, 2, unit=2))


def test_samples_of_different_shapes_are_not_joined() -> None:
    given = [(torch.ones(4, length), torch.zeros(4)) for length in (3, 3, 5, 3)]
    pieces = list(SampleStream(given).take(16, 100, unit=4))
    assert [(piece.size, piece.content[0][0].shape[1]) for piece in pieces] == [
        (8, 3),
        (4, 5),
        (4, 3),
    ]


def test_a_unit_is_never_cut_where_the_shape_changes() -> None:
    given = [(torch.ones(3, length), torch.zeros(3)) for length in (3, 5)]
    with pytest.raises(ChitaError, match="differ"):
        list(SampleStream(given).take(6, 6, unit=2))
