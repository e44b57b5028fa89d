"""The user's batches as an endless stream of samples, divided into pieces of a given size."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor

from chita.errors import ChitaError
from chita.model.samples.arrays import InputSpec
from chita.model.samples.batch import (
    AS_GIVEN,
    Batch,
    differ_in_shape,
    join,
    parse_batch,
    tensors_of,
)
from chita.model.samples.given_data import as_batches
from chita.model.samples.ignored_labels import samples_with_labels
from chita.model.samples.source import READ_ONCE, SampleSource
from chita.model.samples.split import SampleSplit

MOST_AT_ONCE = 256  # samples in a forward pass

Place = tuple[int, int]  # passes begun since the start, and samples given of the last one


class SampleStream:
    """The samples of `batches` in order, again and again.

    Args:
        batches: data in any form that `as_batches` accepts.
        seed: if given, it draws the order in which lists, arrays and data sets are read.
        name: the name of the argument, for messages.
        spec: what the model takes.
        ignored: the label that the loss ignores. Samples without another label do not count.

    Attributes:
        labelled: whether the samples have targets.
    """

    labelled = True

    def __init__(
        self,
        batches: Any,
        seed: int | None = None,
        name: str = "batches",
        spec: InputSpec = AS_GIVEN,
        *,
        ignored: int | None = None,
    ) -> None:
        self.spec = spec

        def counted(batch: Batch) -> Tensor | None:
            return samples_with_labels(batch, ignored, predicts=spec.predicts)

        given = as_batches(batches, spec, name=name, seed=seed, labelled=self.labelled)
        self._source = SampleSource(given, self.parse, seed, name, counted)
        self._rewind()

    @property
    def sample(self) -> Batch | None:
        """The first sample that was read."""
        return self._source.sample

    @property
    def split(self) -> SampleSplit:
        """Which samples are held out from `take`."""
        return self._source.split

    def count(self, limit: int) -> int:
        """Count the samples that are not held out, up to `limit`."""
        return self._source.count(limit)

    def at_once(self, least: int = 1) -> int:
        """Return the number of samples for one forward pass: given batches are assumed to fit.

        Args:
            least: the samples that other parts of the work process at once.
        """
        if self.sample is None:
            self.peek()
        return max(least, min(self._source.batch_size, MOST_AT_ONCE))

    def fitting(self, count: int) -> int:
        """Return how many samples fit into a forward pass, at most `count`: few of many tokens."""
        if self.sample is None:
            self.peek()
        if self.sample is None:
            return count
        tensors = tensors_of(self.sample.inputs)
        return self.spec.fitting(max(tensor.numel() for tensor in tensors), count)

    def hold_out(
        self, counts: Sequence[int], chunk: int, *, rest: int, unit: int = 1
    ) -> list[list[Batch]]:
        """Hold out parts of the samples, which `take` does not return afterwards.

        The content of a sample decides on its part, in every order of the data. If the samples
        differ in each pass, as with random augmentation, they are read once and stored, so that
        every pass gives the same samples.

        Args:
            counts: samples wanted in each part; a part may get slightly fewer.
            chunk: samples in a piece.
            rest: other samples that `take` returns before it starts from the beginning.
            unit: m, the samples of a mini-batch. A piece has whole units, or less than one. If
                samples differ in shape between batches, which `take` does not join, the rest of
                each batch is filled to whole units.

        Returns:
            The pieces of each part.
        """
        parts = self._source.hold_out(counts, rest=rest, unit=unit)
        self._rewind()
        held = (SampleStream(part).take(_size(part), chunk) if part else () for part in parts)
        return [
            [self.prepare(each) for piece in pieces for each in _units_and_rest(piece, unit)]
            for pieces in held
        ]

    def exclude(self, held_out: Sequence[Batch], *, unit: int = 1) -> None:
        """Hold out all samples with the content of these, which another stream holds out.

        Args:
            held_out: the samples.
            unit: as for `hold_out`.
        """
        self._source.exclude(held_out, unit=unit)
        self._rewind()

    def restarted(self) -> SampleStream:
        """Return a new stream of the same samples, from the beginning; this one does not move."""
        other = copy.copy(self)
        other._rewind()
        return other

    def releasing(self, part: int) -> SampleStream:
        """Return a new stream whose `take` also returns the samples of a part held out here."""
        other = self.restarted()
        other._source = self._source.releasing(part)
        return other

    def _rewind(self) -> None:
        self._waiting: Iterator[Batch] = iter(())
        self._rest: Batch | None = None
        self._place: Place = (0, 0)

    @property
    def place(self) -> Place:
        """The position at which `take` continues."""
        return self._place

    def seek(self, place: Place) -> None:
        """Move forward to the `place` of another stream of the same data.

        If all passes are equal, only the last pass is read from its start. Otherwise all passes are
        read, so that an order that is drawn for each pass is drawn as before.
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
        """Return the first batch of a new pass; None if there are no samples."""
        return next(self._source.read(), None)

    def fingerprint(self) -> str | None:
        """Return a hash of all samples; None if they differ in each pass."""
        return self._source.fingerprint()

    def find(self, wrong: Callable[[Batch], int | None], limit: int) -> str | None:
        """Describe the place of the first wrong sample; see `SampleSource.find`.

        Args:
            wrong: returns the index of the first wrong sample among some that `prepare` converted.
            limit: about how many samples to read.
        """
        size = self.at_once()

        def first_of(batch: Batch) -> int | None:
            for start in range(0, batch.size, size):
                place = wrong(self.prepare(batch[start : start + size]))
                if place is not None:
                    return start + place
            return None

        return self._source.find(first_of, limit)

    def one_pass(self) -> Iterator[Batch]:
        """Return all samples that are not held out, once, in the batches that were given."""
        return self._source.read()

    def skip(self, count: int) -> None:
        """Skip the next `count` samples."""
        while count:
            count -= self._cut(count).size

    def take(self, count: int, chunk: int, *, unit: int = 1) -> Iterator[Batch]:
        """Return the next `count` samples in pieces of `chunk`; the last one may be smaller.

        The call continues where the last one stopped, and starts a new pass at the end of the data.
        At most one piece and one given batch are in memory at a time. Samples of different shapes
        are not joined: a piece ends where the shape changes after whole units of `unit` samples.
        """
        return (self.prepare(piece) for piece in self.pieces(count, chunk, unit))

    def prepare(self, piece: Batch) -> Batch:
        """Convert a piece before `take` returns it."""
        return piece

    def pieces(self, count: int, chunk: int, unit: int = 1) -> Iterator[Batch]:
        """Return the pieces of `take` before `prepare` converts them."""
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
        """Return at most `most` of the next samples, from one given batch."""
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
        """Convert one given batch to a `Batch`, which it may be already."""
        return parse_batch(number, given, self.spec)


def _size(batches: Sequence[Batch]) -> int:
    """Return the number of samples in some batches."""
    return sum(batch.size for batch in batches)


def _units_and_rest(batch: Batch, unit: int) -> list[Batch]:
    """Divide a batch into its whole units and the rest."""
    whole = batch.size // unit * unit
    return [part for part in (batch[:whole], batch[whole:]) if part.size]


def first_sample(batches: Any, spec: InputSpec) -> Batch | None:
    """Return the first sample, for methods that need no data; None if there is none."""
    try:
        stream = SampleStream(batches, spec=spec)
        stream.peek()
    except ChitaError:
        return None
    return stream.sample
