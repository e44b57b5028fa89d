"""The user's batches as one endless stream of samples, cut to the sizes that are asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from chita.batch import Batch, describe, differ_in_shape, join, map_tensors, parse_batch, tensors_of
from chita.errors import ChitaError
from chita.memory import free_bytes
from chita.model.rereading import known_size, order_is_fixed, repeats_samples
from chita.model.sample_keys import SampleKeys
from chita.model.sample_split import NOTHING_HELD_OUT, SampleSplit, split_keys
from chita.sizes import format_bytes

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 256  # samples in a forward pass
KEPT_SHARE = 0.5  # of the free memory, that samples which do not come again may take

CHANGING = (
    "%s gives other samples each time it is read, as random augmentation does, or padding without "
    "an attention mask: the first %d are kept and used at every stage, so that held-out ones stay "
    "out; pass held_out=, other samples to choose by, for new ones at every stage"
)

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
        if not isinstance(batches, Iterable):
            raise ChitaError(
                f"{name} must be a list or a DataLoader of (inputs, targets) or of dicts, "
                f"got {describe(batches)}"
            )
        if isinstance(batches, Iterator):
            raise ChitaError(
                f"{name} is a {type(batches).__name__}, which can be read only once; "
                "pass a list or a DataLoader"
            )
        self.sample: Batch | None = None  # the first one that was ever read
        self._given = 1  # the size of the batch it came in
        self._batches, self._name = batches, name
        self._order: list[int] | None = None
        if seed is not None and isinstance(batches, (list, tuple)):
            generator = torch.Generator().manual_seed(seed)
            self._order = torch.randperm(len(batches), generator=generator).tolist()
        self._waiting: Iterator[Batch] = iter(())
        self._rest: Batch | None = None
        self._place: Place = (0, 0)
        self._counted = 0
        self._counted_all = False
        self._keys = SampleKeys(0 if seed is None else seed)
        self.split = NOTHING_HELD_OUT  # which samples `take` does not give
        self._shapes_differ = False  # from batch to batch, as far as they were read
        self._unit: int | None = None  # samples that each batch is filled to, if shapes differ

    def count(self, limit: int) -> int:
        """The number of samples the data hold beside those held out, counted up to `limit`."""
        if self._counted < limit and not self._counted_all:
            self._counted = 0
            for batch in self._read():
                self._counted += batch.size
                if self._counted >= limit:
                    break
            else:
                self._counted_all = True
        if not self._counted and self._counted_all:
            raise ChitaError(
                f"{self._name} hold no samples"
                + ("" if self.split is NOTHING_HELD_OUT else " that differ from those held out")
            )
        return min(self._counted, limit)

    def at_once(self, least: int = 1) -> int:
        """How many samples a forward pass may take: what is given fits, and so does a row of A.

        Args:
            least: that the rest of the work takes at once anyway.
        """
        if self.sample is None:
            self.peek()
        return max(least, min(self._given, MOST_AT_ONCE))

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
        if not repeats_samples(self._batches, self.parse):
            kept = self._keep(sum(counts) + rest)
            if rest:
                logger.warning(CHANGING, self._name, kept)
        size = known_size(self._batches, self.parse)
        keys: list[Tensor] = []
        read = self._read_keys(keys)
        self.split = split_keys(read, counts, rest=rest, size=size)
        whole = bool(keys) and next(read, None) is None
        parts = self._collect(counts)
        self._start_anew(unit)
        if whole:  # what the next pass holds may differ, where a sampler draws some of the data
            self._counted = sum(int((self.split.part_of(k) == self.split.rest).sum()) for k in keys)
            self._counted_all = True
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
        keys = [self._keys.of(batch) for batch in held_out]
        self.split = SampleSplit(excluded=torch.cat([torch.empty(0, dtype=torch.int64), *keys]))
        self._start_anew(unit)

    def _keep(self, count: int) -> int:
        """Read samples of one pass, at most so many, and replace the data by them; their number."""
        count = self.count(count)
        assert self.sample is not None
        each = sum(t.numel() * t.element_size() for t in tensors_of(self.sample.content))
        free = free_bytes(torch.device("cpu"))
        if free is not None and count * each > KEPT_SHARE * free:
            raise ChitaError(
                f"{self._name} gives other samples each time it is read, as random augmentation "
                f"does, and to keep {count} of them takes {format_bytes(count * each)}, where "
                f"{format_bytes(free)} are free; pass held_out=, other samples to choose by, or "
                "give fewer samples"
            )
        self._batches, self._order = list(self._pieces(count, MOST_AT_ONCE)), None
        self._start_anew()
        return count

    def _collect(self, counts: Sequence[int]) -> list[list[Batch]]:
        """Read on until every part is complete, or the pass ends."""
        parts: list[list[Batch]] = [[] for _ in counts]
        missing = list(counts)
        for batch in self._read_all():
            part_of = self.split.part_of(self._keys.of(batch))
            for part, pieces in enumerate(parts):
                inside = (part_of == part).nonzero()[: missing[part], 0]
                if len(inside):
                    pieces.append(batch.select(inside))
                    missing[part] -= len(inside)
            if not any(missing):
                break
        return parts

    def _start_anew(self, unit: int = 1) -> None:
        self._unit = unit if self._shapes_differ else None
        self._rest, self._waiting, self._place = None, iter(()), (0, 0)
        self._counted, self._counted_all = 0, False

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
        if passes and order_is_fixed(self._batches):
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
        return self.peek() if order_is_fixed(self._batches) else None

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
            self._waiting = self._read()
            self._place = (self._place[0] + 1, 0)
            batch = next(self._waiting, None)
        if batch is None:
            raise ChitaError(
                f"{self._name} hold no samples; a list or a DataLoader can be read again"
            )
        return batch

    def _read(self) -> Iterator[Batch]:
        """One pass over the samples that are not held out."""
        if self.split is NOTHING_HELD_OUT:
            yield from self._read_all()
            return
        for batch in self._read_all():
            inside = (self.split.part_of(self._keys.of(batch)) == self.split.rest).nonzero()[:, 0]
            if self._unit is not None and len(inside) % self._unit:
                inside = inside[_whole_units(len(inside), self._unit)]
            elif len(inside) == batch.size:
                yield batch
                continue
            if len(inside):
                yield batch.select(inside)

    def _read_keys(self, keys: list[Tensor]) -> Iterator[Tensor]:
        """One pass over the keys of the samples, which are also put into a list."""
        for batch in self._read():
            keys.append(self._keys.of(batch))
            yield keys[-1]

    def _read_all(self) -> Iterator[Batch]:
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
                self._shapes_differ |= differ_in_shape(batch, self.sample)
                yield batch

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


def _whole_units(count: int, unit: int) -> Tensor:
    """Return indices of `count` samples that make whole units: the nearest number, at least one.

    The last samples are left out, or the first ones come twice.
    """
    return torch.arange(max(round(count / unit), 1) * unit) % count


def first_sample(batches: Any) -> Batch | None:
    """One sample of data given to a method that needs none; None if it cannot be had."""
    try:
        stream = SampleStream(batches)
        stream.peek()
    except ChitaError:
        return None
    return stream.sample
