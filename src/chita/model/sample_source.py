"""Passes over a user's batches, and which of their samples are held out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.model.batch import Batch, describe, differ_in_shape, map_tensors, tensors_of
from chita.model.sample_keys import SampleKeys, known_size, order_is_fixed, repeats_samples
from chita.model.sample_split import NOTHING_HELD_OUT, SampleSplit, split_keys
from chita.solver.matrix.memory import format_bytes, free_bytes

logger = logging.getLogger(__name__)

KEPT_SHARE = 0.5  # of the free memory, that samples which do not come again may take

READ_ONCE = "{} hold no samples; a list or a DataLoader can be read again"
CHANGING = (
    "%s gives other samples each time it is read, as random augmentation does, or padding without "
    "an attention mask: the first %d are kept and used at every stage, so that held-out ones stay "
    "out; pass held_out=, other samples to choose by, for new ones at every stage"
)


class SampleSource:
    """Data that are read again and again.

    Args:
        batches: a list, a DataLoader or anything else that can be iterated more than once.
        parse: makes a `Batch` of a given one, with its number.
        seed: of the keys; if given, a list or tuple is read in an order drawn from it.
        name: of the argument that gave them, for messages.

    Attributes:
        sample: a copy of the first sample that was read; None before that.
        batch_size: the size of the batch it came in.
        split: which samples are held out.
    """

    def __init__(
        self,
        batches: Iterable[Any],
        parse: Callable[[int, Any], Batch],
        seed: int | None,
        name: str,
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
        self.name = name
        self.sample: Batch | None = None
        self.batch_size = 1
        self.split = NOTHING_HELD_OUT
        self._batches, self._parse = batches, parse
        self._order: list[int] | None = None
        if seed is not None and isinstance(batches, (list, tuple)):
            generator = torch.Generator().manual_seed(seed)
            self._order = torch.randperm(len(batches), generator=generator).tolist()
        self._keys = SampleKeys(0 if seed is None else seed)
        self._counted, self._counted_all = 0, False
        self._shapes_differ = False  # from batch to batch, as far as they were read
        self._unit: int | None = None  # samples that each batch is filled to, if shapes differ

    @property
    def order_is_fixed(self) -> bool:
        """Whether every pass is known to give the same samples in the same order."""
        return order_is_fixed(self._batches)

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
            raise ChitaError(
                f"{self.name} hold no samples"
                + ("" if self.split is NOTHING_HELD_OUT else " that differ from those held out")
            )
        return min(self._counted, limit)

    def hold_out(self, counts: Sequence[int], *, rest: int, unit: int) -> list[list[Batch]]:
        """Set parts of the samples apart; see `SampleStream.hold_out`."""
        if not repeats_samples(self._batches, self._parse):
            kept = self._keep(sum(counts) + rest)
            if rest:
                logger.warning(CHANGING, self.name, kept)
        keys: list[Tensor] = []
        read = self._read_keys(keys)
        size = known_size(self._batches, self._parse)
        self.split = split_keys(read, counts, rest=rest, size=size)
        whole = bool(keys) and next(read, None) is None
        parts = self._collect(counts)
        self._forget_count(unit)
        if (
            whole and self._unit is None
        ):  # what the next pass holds may differ, where a sampler draws some of the data
            self._counted = sum(int((self.split.part_of(k) == self.split.rest).sum()) for k in keys)
            self._counted_all = True
        return parts

    def exclude(self, held_out: Sequence[Batch], *, unit: int) -> None:
        """Hold out the samples with the content of these."""
        keys = [self._keys.of(batch) for batch in held_out]
        self.split = SampleSplit(excluded=torch.cat([torch.empty(0, dtype=torch.int64), *keys]))
        self._forget_count(unit)

    def _keep(self, count: int) -> int:
        """Read samples of one pass, at most so many, and replace the data by them; their number."""
        count = self.count(count)
        assert self.sample is not None
        tensors = tensors_of(self.sample.content)
        each = sum(t.numel() * t.element_size() for t in tensors)
        free = free_bytes(tensors[0].device)
        if free is not None and count * each > KEPT_SHARE * free:
            raise ChitaError(
                f"{self.name} gives other samples each time it is read, as random augmentation "
                f"does, and to keep {count} of them takes {format_bytes(count * each)}, where "
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

    def _forget_count(self, unit: int) -> None:
        self._unit = unit if self._shapes_differ else None
        self._counted, self._counted_all = 0, False

    def _read_keys(self, keys: list[Tensor]) -> Iterator[Tensor]:
        """Read one pass over the keys of the samples, which are also put into a list."""
        for batch in self.read():
            keys.append(self._keys.of(batch))
            yield keys[-1]

    def _read_all(self) -> Iterator[Batch]:
        """Read one pass over the given batches, checked; those without samples are left out."""
        given: Iterable[tuple[int, Any]] = enumerate(self._batches)
        if self._order is not None:
            numbered = list(given)
            given = (numbered[i] for i in self._order)
        for number, content in given:
            batch = self._parse(number, content)
            if batch.size:
                if self.sample is None:  # a copy, which does not hold on to the rest of the batch
                    self.sample = Batch(map_tensors(Tensor.clone, batch[:1].content), 1)
                    self.batch_size = batch.size
                self._shapes_differ |= differ_in_shape(batch, self.sample)
                yield batch


def _whole_units(count: int, unit: int) -> Tensor:
    """Return indices of `count` samples that make whole units: the nearest number, at least one.

    The last samples are left out, or the first ones come twice.
    """
    return torch.arange(max(round(count / unit), 1) * unit) % count
