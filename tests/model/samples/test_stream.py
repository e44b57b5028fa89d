"""The stream of samples: what comes out is what went in, cut anew, over and over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from chita.data import Batches, ImageData
from chita.errors import ChitaError
from chita.model.samples.batch import Batch
from chita.model.samples.stream import SampleStream
from tests.support.messages import naming
from tests.support.numbered import numbered


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


def test_a_peek_takes_nothing() -> None:
    stream = SampleStream(numbered([0, 2, 3]))
    assert numbers_of(next(stream.take(1, 1))) == [0]
    first = stream.peek()
    assert first is not None and numbers_of(first) == [0, 1]
    assert numbers_of(next(stream.take(3, 3))) == [1, 2, 3]
    assert SampleStream(numbered([0])).peek() is None


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
    with pytest.raises(ChitaError, match=naming("batches", "samples", "shape", 3, 5)):
        list(SampleStream(given).take(6, 6, unit=2))


def listed(sizes: list[int]) -> SampleStream:
    return SampleStream(numbered(sizes), seed=5)


def shuffled(sizes: list[int]) -> SampleStream:
    numbers = torch.arange(sum(sizes))
    data = TensorDataset(numbers.float().unsqueeze(1), numbers)
    generator = torch.Generator().manual_seed(1)
    return SampleStream(DataLoader(data, sizes[0], shuffle=True, generator=generator))


def images(sizes: list[int], **keywords: Any) -> SampleStream:
    """Of one pixel each, so few that they are told apart by their labels."""
    numbers = torch.arange(sum(sizes))
    pixels = numbers.to(torch.uint8)[:, None, None, None]
    return SampleStream(Batches(ImageData(pixels, numbers, (0.0,), (1.0,)), sizes[0], **keywords))


@settings(deadline=None)  # a DataLoader takes its time
@given(
    st.sampled_from([listed, shuffled, images, partial(images, shuffle=True, seed=2)]),
    st.lists(st.integers(1, 7), min_size=1, max_size=6),
    st.integers(0, 5),
    st.lists(st.integers(0, 30), max_size=4),
    st.integers(0, 4),
)
def test_a_place_can_be_gone_back_to(
    stream_of: Callable[[list[int]], SampleStream],
    sizes: list[int],
    held: int,
    takes: list[int],
    begun: int,
) -> None:
    """By another stream of the same data, which then gives the same samples for three passes.

    It may have gone a part of the way already, as a run that is resumed has.
    """

    def start() -> SampleStream:
        stream = stream_of(sizes)
        stream.count(sum(sizes))
        stream.hold_out([min(held, sum(sizes) - 1)], 2, rest=1)
        return stream

    def rest(stream: SampleStream) -> list[list[int]]:
        return [piece.content[1].tolist() for piece in stream.take(3 * sum(sizes), 4)]

    stream, other = start(), start()
    for count in takes:
        list(stream.take(count, 3))
    for count in takes[:begun]:
        list(other.take(count, 3))
    other.seek(stream.place)
    assert other.place == stream.place
    assert rest(other) == rest(stream)


def test_a_place_before_a_change_of_shape() -> None:
    """The batch that was looked at, and left, counts as not given."""
    given = [(torch.zeros(4, 2), torch.arange(4)), (torch.zeros(4, 3), torch.arange(4, 8))]
    stream, other = SampleStream(given), SampleStream(given)
    assert next(stream.take(6, 6, unit=2)).size == 4
    other.seek(stream.place)
    assert [next(s.take(2, 2)).content[1].tolist() for s in (stream, other)] == [[4, 5]] * 2


def test_passes_that_are_alike_are_not_read_again() -> None:
    class Counting(list[Any]):
        read = 0

        def __iter__(self) -> Iterator[Any]:
            self.read += 1
            return super().__iter__()

    data = Counting(numbered([3, 4]))
    SampleStream(data).seek((50, 6))
    assert data.read == 1
    lazy = Lazy()
    SampleStream(lazy).seek((3, 2))
    assert lazy.given == 100 + 100 + 1


def test_a_restarted_stream_is_another() -> None:
    """It begins with the samples that are not held out, and leaves the first one where it is."""
    stream = SampleStream(numbered([3, 4, 3]))
    (held,) = stream.hold_out([2], 2, rest=1)
    out = [number for batch in held for number in numbers_of(batch)]
    left = [number for number in range(10) if number not in out]
    assert len(left) == 8
    list(stream.take(3, 3))
    other = stream.restarted()
    assert [n for batch in other.take(10, 5) for n in numbers_of(batch)] == left + left[:2]
    assert [n for batch in stream.take(4, 4) for n in numbers_of(batch)] == left[3:7]
