"""The user's batches as one endless stream of samples, cut to the sizes that are asked for."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from chita.errors import ChitaError
from chita.model.batch import Batch, differ_in_shape, join, parse_batch
from chita.model.sample_source import READ_ONCE, SampleSource, SampleSplit

MOST_AT_ONCE = 256  # samples in a forward pass

Place = tuple[int, int]  # passes begun since the start, and samples given of the last one


class SampleStream:
    """The samples of `batches`, one after the other and round again.

    Args:
        batches: a list, a DataLoader or anything else that can be iterated more than once.
        seed: if given, a list or tuple is read in an order drawn from it.
        name: of the argument that gave them, for messages.
    """

    def __init__(
        self, batches: Iterable[Any], seed: int | None = None, name: str = "batches"
    ) -> None:
        self._source = SampleSource(batches, self.parse, seed, name)
        self._start_anew()

    @property
    def sample(self) -> Batch | None:
        """The first sample that was ever read."""
        return self._source.sample

    @property
    def split(self) -> SampleSplit:
        """Which samples `take` does not give."""
        return self._source.split

    def count(self, limit: int) -> int:
        """The number of samples the data hold beside those held out, counted up to `limit`."""
        return self._source.count(limit)

    def at_once(self, least: int = 1) -> int:
        """How many samples a forward pass may take: what is given fits, and so does a row of A.

        Args:
            least: that the rest of the work takes at once anyway.
        """
        if self.sample is None:
            self.peek()
        return max(least, min(self._source.batch_size, MOST_AT_ONCE))

    def hold_out(
        self, counts: Sequence[int], chunk: int, *, rest: int, unit: int = 1
    ) -> list[list[Batch]]:
        """Set parts of the samples apart, which `take` never gives again.

        The content of a sample decides where it belongs, so that it stays there in whatever order
        the data are read. Data whose samples differ each time they are read, as random
        augmentation makes them, are read once and kept: every pass then gives the same ones.

        Args:
            counts: samples wanted in each part; a part may get a few less.
            chunk: samples in a piece.
            rest: samples beside them that `take` is to give before it starts anew.
            unit: m, the samples of a mini-batch. A piece has whole units, or less than one. Where
                samples differ in shape from batch to batch, which `take` does not join, what is
                left of each batch is made up to whole units.

        Returns:
            The pieces of each part.
        """
        parts = self._source.hold_out(counts, rest=rest, unit=unit)
        self._start_anew()
        held = (SampleStream(part).take(_size(part), chunk) if part else () for part in parts)
        return [
            [self.prepare(each) for piece in pieces for each in _units_and_rest(piece, unit)]
            for pieces in held
        ]

    def exclude(self, held_out: Sequence[Batch], *, unit: int = 1) -> None:
        """Never give samples with the content of these, which were held out elsewhere.

        Args:
            held_out: such samples.
            unit: as for `hold_out`.
        """
        self._source.exclude(held_out, unit=unit)
        self._start_anew()

    def restarted(self) -> SampleStream:
        """Another stream of the same samples, at their start; this one stays where it is."""
        other = copy.copy(self)
        other._start_anew()
        return other

    def _start_anew(self) -> None:
        self._waiting: Iterator[Batch] = iter(())
        self._rest: Batch | None = None
        self._place: Place = (0, 0)

    @property
    def place(self) -> Place:
        """Where `take` goes on."""
        return self._place

    def seek(self, place: Place) -> None:
        """Go on from the `place` that another stream of the same data was at, not before this one.

        Data whose passes are all alike are read from the start of the last pass only. Others are
        read through, so that an order that is drawn anew for each pass is drawn as it was.
        """
        passes, given = place
        if passes and self._source.order_is_fixed:
            self._waiting, self._place = iter(()), (passes - 1, 0)
        while self._place[0] < passes:
            for _ in self._waiting:
                pass
            self._rest = self._next()
        self.skip(given - self._place[1])

    def peek(self) -> Batch | None:
        """The first batch of a pass that is begun for it alone; None if there are no samples."""
        return next(self._source.read(), None)

    def first(self) -> Batch | None:
        """The first batch of each pass; None if there is none, or not the same one each time."""
        return self.peek() if self._source.order_is_fixed else None

    def skip(self, count: int) -> None:
        """Pass over the next `count` samples."""
        while count:
            count -= self._cut(count).size

    def take(self, count: int, chunk: int, *, unit: int = 1) -> Iterator[Batch]:
        """The next `count` samples in pieces of `chunk`, the last one possibly smaller.

        Goes on where the last call stopped, and starts anew at the end of the data. At most one
        piece and one given batch are held at a time. Samples of different shapes are not joined:
        where the shape changes after whole units of `unit` samples, the piece ends.
        """
        return (self.prepare(piece) for piece in self._pieces(count, chunk, unit))

    def prepare(self, piece: Batch) -> Batch:
        """Make of a piece what the work needs, before it is given."""
        return piece

    def _pieces(self, count: int, chunk: int, unit: int = 1) -> Iterator[Batch]:
        while count > 0:
            piece = self._piece(min(chunk, count), unit)
            count -= piece.size
            yield piece

    def _piece(self, size: int, unit: int) -> Batch:
        parts: list[Batch] = []
        missing = size
        while missing:
            self._rest = self._rest or self._next()
            if parts and (size - missing) % unit == 0 and differ_in_shape(self._rest, parts[0]):
                break
            parts.append(self._cut(missing))
            missing -= parts[-1].size
        return join(parts)

    def _cut(self, most: int) -> Batch:
        """The next samples, at most so many, of one given batch."""
        batch = self._rest or self._next()
        part = batch[:most]
        self._rest = batch[most:] if batch.size > most else None
        passes, given = self._place
        self._place = (passes, given + part.size)
        return part

    def _next(self) -> Batch:
        batch = next(self._waiting, None)
        if batch is None:
            self._waiting = self._source.read()
            self._place = (self._place[0] + 1, 0)
            batch = next(self._waiting, None)
        if batch is None:
            raise ChitaError(READ_ONCE.format(self._source.name))
        return batch

    def parse(self, number: int, given: Any) -> Batch:
        """The samples of one given batch; one that was parsed before stays as it is."""
        return parse_batch(number, given)


def _size(batches: Sequence[Batch]) -> int:
    """The number of samples in some batches."""
    return sum(batch.size for batch in batches)


def _units_and_rest(batch: Batch, unit: int) -> list[Batch]:
    """Cut off what is more than whole units."""
    whole = batch.size // unit * unit
    return [part for part in (batch[:whole], batch[whole:]) if part.size]


def first_sample(batches: Any) -> Batch | None:
    """One sample of data given to a method that needs none; None if it cannot be had."""
    try:
        stream = SampleStream(batches)
        stream.peek()
    except ChitaError:
        return None
    return stream.sample
