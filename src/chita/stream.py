"""The user's batches as one endless stream of samples, cut to the sizes that are asked for."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from chita.batch import Batch, describe, differ_in_shape, join, map_tensors, parse_batch
from chita.data.dataset import Batches
from chita.errors import ChitaError

MOST_AT_ONCE = 256  # samples in a forward pass

Place = tuple[int, int]  # passes begun since the start, and samples given of the last one


class SampleStream:
    """The samples of `batches`, one after the other and round again.

    Args:
        batches: a list, a DataLoader or anything else that can be iterated more than once.
        seed: if given, a list or tuple is read in an order drawn from it.
    """

    def __init__(self, batches: Iterable[Any], seed: int | None = None) -> None:
        if not isinstance(batches, Iterable):
            raise ChitaError(
                "batches must be a list or a DataLoader of (inputs, targets) or of dicts, "
                f"got {describe(batches)}"
            )
        if isinstance(batches, Iterator):
            raise ChitaError(
                f"batches is a {type(batches).__name__}, which can be read only once; "
                "pass a list or a DataLoader"
            )
        self.sample: Batch | None = None  # the first one that was ever read
        self._given = 1  # the size of the batch it came in
        self._batches = batches
        self._order: list[int] | None = None
        if seed is not None and isinstance(batches, (list, tuple)):
            generator = torch.Generator().manual_seed(seed)
            self._order = torch.randperm(len(batches), generator=generator).tolist()
        self._waiting: Iterator[Batch] = iter(())
        self._rest: Batch | None = None
        self._place: Place = (0, 0)
        self._counted = 0
        self._counted_all = False
        self._held_out = 0

    def count(self, limit: int) -> int:
        """The number of samples the data hold beside those held out, counted up to `limit`."""
        wanted = limit + self._held_out
        if self._counted < wanted and not self._counted_all:
            self._counted = 0
            for batch in self._read():
                self._counted += batch.size
                if self._counted >= wanted:
                    break
            else:
                self._counted_all = True
        if not self._counted and self._counted_all:
            raise ChitaError("batches hold no samples")
        return min(self._counted, wanted) - self._held_out

    def at_once(self, least: int = 1) -> int:
        """How many samples a forward pass may take: what is given fits, and so does a row of A.

        Args:
            least: that the rest of the work takes at once anyway.
        """
        if self.sample is None:
            self.peek()
        return max(least, min(self._given, MOST_AT_ONCE))

    def hold_out(self, count: int, chunk: int) -> list[Batch]:
        """The first `count` samples, in pieces of `chunk`, which `take` then passes over.

        Data that come in another order each time they are read are passed over just the same, but
        then some of these samples turn up again.
        """
        self._rest, self._waiting = None, iter(())
        held = list(self.take(count, chunk))
        self._held_out = count
        self._place = (0, 0)  # the rest of this pass is where the stream starts
        return held

    def restarted(self) -> SampleStream:
        """Another stream of the same samples, at their start; this one stays where it is."""
        other = copy.copy(self)
        other._rest, other._waiting, other._place = None, iter(()), (0, 0)
        return other

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
        if passes and self._passes_are_alike():
            self._waiting, self._place = iter(()), (passes - 1, 0)
        while self._place[0] < passes:
            for _ in self._waiting:
                pass
            self._rest = self._next()
        self.skip(given - self._place[1])

    def peek(self) -> Batch | None:
        """The first batch of a pass that is begun for it alone; None if there are no samples."""
        return next(self._read(), None)

    def first(self) -> Batch | None:
        """The first batch of each pass; None if there is none, or not the same one each time."""
        return self.peek() if self._passes_are_alike() else None

    def _passes_are_alike(self) -> bool:
        """Whether that is known: a DataLoader, say, may draw a new order, or augment."""
        data = self._batches
        if isinstance(data, Batches):
            return not data.shuffle and data.augment is None
        return isinstance(data, (list, tuple))

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
            self._waiting = self._read()
            self._place = (self._place[0] + 1, 0)
            batch = self._after_held_out()
        if batch is None:
            raise ChitaError("batches hold no samples; a list or a DataLoader can be read again")
        return batch

    def _read(self) -> Iterator[Batch]:
        """One pass over the given batches, checked; those without samples are left out."""
        given: Iterable[tuple[int, Any]] = enumerate(self._batches)
        if self._order is not None:
            numbered = list(given)
            given = (numbered[i] for i in self._order)
        for number, content in given:
            batch = self.parse(number, content)
            if batch.size:
                if self.sample is None:  # a copy, which does not hold on to the rest of the batch
                    self.sample = Batch(map_tensors(Tensor.clone, batch[:1].content), 1)
                    self._given = batch.size
                yield batch

    def parse(self, number: int, given: Any) -> Batch:
        """The samples of one given batch."""
        return parse_batch(number, given)

    def _after_held_out(self) -> Batch | None:
        """What is left of the first batch that is not wholly held out."""
        passed = 0
        for batch in self._waiting:
            passed += batch.size
            if passed > self._held_out:
                return batch[batch.size - (passed - self._held_out) :]
        return None


def first_sample(batches: Any) -> Batch | None:
    """One sample of data given to a method that needs none; None if it cannot be had."""
    try:
        stream = SampleStream(batches)
        stream.peek()
    except ChitaError:
        return None
    return stream.sample
