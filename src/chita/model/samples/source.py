"""Passes over a user's batches, and which of their samples are held out.

A rule on the keys of the samples decides which ones are held out: the same in every pass.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.model.samples.batch import Batch, differ_in_shape, map_tensors, tensors_of
from chita.model.samples.batches import SampleBatches
from chita.model.samples.fingerprint import (
    MOST_COMPARED,
    Fingerprinted,
    batches_fingerprint,
    loader_fingerprint,
)
from chita.model.samples.keys import (
    SampleKeys,
    is_indexed,
    known_size,
    order_is_fixed,
    repeats_samples,
)
from chita.model.samples.split import NOTHING_HELD_OUT, SampleSplit, split_keys
from chita.solver.matrix.memory import format_bytes, free_bytes

logger = logging.getLogger(__name__)

KEPT_SHARE = 0.5  # the share of the free memory that stored samples may occupy

READ_ONCE = (
    "{} gives no samples, or none in a second pass; pass at least one sample, in a list or a "
    "DataLoader, which can be read again"
)
CHANGING = (
    "%s gives other samples each time it is read, as with random augmentation or with padding "
    "without an attention mask; chita keeps the first %d samples and uses them at every "
    "stage, so that held-out samples stay apart. Pass held_out= to get new ones at every stage"
)

IGNORED_SAMPLES = (
    "%s has samples whose labels are all ignored by the loss, as those of -100: they do not count"
)
ALL_IGNORED = (
    "all labels of all samples of {} are ignored by the loss, as those of -100, so that there is "
    "no loss; give labels, or calibrate without them by loss='distill'"
)


class SampleSource:
    """Batches of a user that are read in several passes.

    Args:
        batches: batches from `as_batches`, which can be iterated more than once.
        parse: converts a given batch, with its number, to a `Batch`.
        seed: the seed of the keys; if given, also of the order in which a list or tuple is read.
        name: the name of the argument, for messages.
        counted: returns the indices of the samples of a batch that count; None if all do.

    Attributes:
        sample: a copy of the first sample read; None before that.
        batch_size: the size of the largest batch so far.
        split: which samples are held out.
    """

    def __init__(
        self,
        batches: Iterable[Any],
        parse: Callable[[int, Any], Batch],
        seed: int | None,
        name: str,
        counted: Callable[[Batch], Tensor | None] = lambda _: None,
    ) -> None:
        self._samples_counted, self._warned = counted, False
        self.name, self.split = name, NOTHING_HELD_OUT
        self.sample: Batch | None = None
        self.batch_size = 1
        self._batches, self._parse = batches, parse
        self._order: list[int] | None = None
        if seed is not None and isinstance(batches, (list, tuple)):
            generator = torch.Generator().manual_seed(seed)
            self._order = torch.randperm(len(batches), generator=generator).tolist()
        self._keys = SampleKeys(0 if seed is None else seed)
        self._counted, self._counted_all = 0, False
        self._shapes_differ = False  # between the batches read so far
        self._repeats: bool | None = None  # whether every pass has the same samples, once known
        self._unit: int | None = None  # batches are filled to multiples of it if shapes differ

    @property
    def order_is_fixed(self) -> bool:
        """Whether every pass is known to give the same samples in the same order."""
        return order_is_fixed(self._batches)

    def fingerprint(self) -> str | None:
        """Return a hash of all samples; None if they differ in each pass, or may do so."""
        given = self._batches
        if isinstance(given, Fingerprinted):
            return given.fingerprint()
        if self.order_is_fixed:
            return batches_fingerprint(batch.content for batch in self._read_all())
        if is_indexed(given):
            return loader_fingerprint(given)
        if not self._repeats:
            return None
        return batches_fingerprint(batch.content for batch in self._first_batches())

    def _first_batches(self) -> Iterator[Batch]:
        read = 0
        for batch in self._read_all():
            yield batch
            read += batch.size
            if read >= MOST_COMPARED:
                return

    def read(self) -> Iterator[Batch]:
        """Read one pass over the samples that are not held out."""
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

    def count(self, limit: int) -> int:
        """Count the samples of a pass that are not held out, up to `limit`."""
        if self._counted < limit and not self._counted_all:
            self._counted = 0
            for batch in self.read():
                self._counted += batch.size
                if self._counted >= limit:
                    break
            else:
                self._counted_all = True
        if not self._counted and self._counted_all:
            others = "" if self.split is NOTHING_HELD_OUT else " that differ from those held out"
            raise ChitaError(f"there are no samples in {self.name}{others}")
        return min(self._counted, limit)

    def hold_out(self, counts: Sequence[int], *, rest: int, unit: int) -> list[list[Batch]]:
        """Hold out parts of the samples; see `SampleStream.hold_out`."""
        self._repeats = repeats_samples(self._batches, self._parse)
        if not self._repeats:
            kept = self._keep(sum(counts) + rest)
            if rest:
                logger.warning(CHANGING, self.name, kept)
        keys: list[Tensor] = []
        read = self._read_keys(keys)
        size = None if self._warned else known_size(self._batches, self._parse)
        self.split = split_keys(read, counts, rest=rest, size=size)
        whole = bool(keys) and next(read, None) is None
        parts = self._collect(counts)
        self._forget_count(unit)
        # Count this pass: the next may differ, if a sampler draws a part of the data.
        if whole and self._unit is None:
            self._counted = sum(int((self.split.part_of(k) == self.split.rest).sum()) for k in keys)
            self._counted_all = True
        return parts

    def exclude(self, held_out: Sequence[Batch], *, unit: int) -> None:
        """Hold out all samples whose content is that of one of these."""
        keys = [self._keys.of(batch) for batch in held_out]
        self.split = SampleSplit(excluded=torch.cat([torch.empty(0, dtype=torch.int64), *keys]))
        self._forget_count(unit)

    def releasing(self, part: int) -> SampleSource:
        """Return a source of the same samples that does not hold out one of the parts."""
        other = copy.copy(self)
        other.split = self.split.releasing(part)
        other._counted, other._counted_all = 0, False
        return other

    def _keep(self, count: int) -> int:
        """Replace the data by at most `count` samples of one pass, and return their number."""
        count = self.count(count)
        assert self.sample is not None
        tensors = tensors_of(self.sample.content)
        each = sum(t.numel() * t.element_size() for t in tensors)
        free = free_bytes(tensors[0].device)
        if free is not None and count * each > KEPT_SHARE * free:
            raise ChitaError(
                f"{self.name} gives other samples each time it is read, as random augmentation "
                f"does, and keeping {count} of them needs {format_bytes(count * each)}, where "
                f"{format_bytes(free)} are free; pass held_out=, other samples to choose by, or "
                "give fewer samples"
            )
        kept, missing = list[Batch](), count
        for batch in self._read_all():
            part = batch[:missing]
            kept.append(Batch(map_tensors(Tensor.clone, part.content), part.size))
            missing -= part.size
            if not missing:
                break
        if not kept:
            raise ChitaError(READ_ONCE.format(self.name))
        self._batches, self._order = kept, None
        self._forget_count(unit=1)
        return count

    def _collect(self, counts: Sequence[int]) -> list[list[Batch]]:
        """Read until every part is complete or the pass ends."""
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

    def _forget_count(self, unit: int) -> None:
        self._unit = unit if self._shapes_differ else None
        self._counted, self._counted_all = 0, False

    def _read_keys(self, keys: list[Tensor]) -> Iterator[Tensor]:
        """Read one pass over the keys of the samples, and append them to a list."""
        for batch in self.read():
            keys.append(self._keys.of(batch))
            yield keys[-1]

    def find(self, wrong: Callable[[Batch], int | None], limit: int) -> str | None:
        """Describe the place of a sample in the data of the user.

        Args:
            wrong: returns the index of the sample, if it is in a batch.
            limit: about how many samples to read.
        """
        read = 0
        for number, index, batch in self._read_numbered():
            place = wrong(batch)
            if place is not None:
                place = place if index is None else int(index[place])
                if isinstance(self._batches, SampleBatches):
                    return f"sample {self._batches.index_of(number, place)} of {self.name}"
                return f"sample {place} of batch {number} of {self.name}"
            read += batch.size
            if read >= limit:
                break
        return None

    def _read_all(self) -> Iterator[Batch]:
        """Read one pass over the checked batches, without empty ones."""
        return (batch for _, _, batch in self._read_numbered())

    def _read_numbered(self) -> Iterator[tuple[int, Tensor | None, Batch]]:
        """Read one pass over the samples that count.

        Yields:
            The number of each batch, the indices of its samples that count (None if all do), and
            these samples.
        """
        given: Iterable[tuple[int, Any]] = enumerate(self._batches)
        if self._order is not None:
            numbered = list(given)
            given = (numbered[i] for i in self._order)
        empty = True
        for number, content in given:
            whole = self._parse(number, content)
            index = self._samples_counted(whole)
            if index is not None and not self._warned:
                self._warned = True
                logger.warning(IGNORED_SAMPLES, self.name)
            batch = whole if index is None else whole.select(index)
            if batch.size:
                empty = False
                if self.sample is None:  # a copy does not keep the rest of the batch in memory
                    self.sample = Batch(map_tensors(Tensor.clone, batch[:1].content), 1)
                self.batch_size = max(self.batch_size, whole.size)
                self._shapes_differ |= differ_in_shape(batch, self.sample)
                yield number, index, batch
        if empty and self._warned:
            raise ChitaError(ALL_IGNORED.format(self.name))


def _whole_units(count: int, unit: int) -> Tensor:
    """Return indices of `count` samples that form whole units: the nearest number, at least one.

    The last samples are omitted, or the first ones are repeated.
    """
    return torch.arange(max(round(count / unit), 1) * unit) % count
