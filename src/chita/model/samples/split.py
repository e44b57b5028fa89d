"""Which samples are held out: a rule on the keys of the samples."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from chita.model.samples.keys import KEYS

FEW = 256  # samples that are always counted: random shares of so few are too inexact
AMPLE = 4  # times the needed samples; a larger data set does not increase a share
MARGIN = 4  # standard deviations by which a share exceeds the wanted number of samples
LEAST_PART = 32  # a share for fewer samples might be empty


@dataclass(frozen=True)
class SampleSplit:
    """Parts of the samples, by their keys.

    Attributes:
        bounds: part i has the keys from bounds[i - 1], or 0, up to bounds[i]; the rest follows.
        excluded: keys that belong neither to a part nor to the rest.
        released: a part that belongs to the rest after all, if there is one.
    """

    bounds: tuple[int, ...] = ()
    excluded: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    released: int | None = None

    @property
    def rest(self) -> int:
        """The number of the part that is not held out."""
        return len(self.bounds)

    def part_of(self, keys: Tensor) -> Tensor:
        """Return the part of each key, (samples,); -1 for excluded keys."""
        part = torch.bucketize(keys, torch.tensor(self.bounds, dtype=torch.int64), right=True)
        if self.released is not None:
            part.masked_fill_(part == self.released, self.rest)
        return part.masked_fill_(torch.isin(keys, self.excluded), -1)

    def releasing(self, part: int) -> SampleSplit:
        """Return a split in which a part belongs to the rest."""
        return replace(self, released=part)


NOTHING_HELD_OUT = SampleSplit()


def split_keys(
    read: Iterable[Tensor], counts: Sequence[int], *, rest: int, size: int | None
) -> SampleSplit:
    """Divide the keys so that each part, and the rest, get the wanted numbers of samples.

    If a pass has at most twice the needed samples, all keys are read and every part gets its
    count, or slightly fewer samples, because samples with equal content stay together. In larger
    data each part gets a share of the keys that contains enough samples.

    Args:
        read: the keys of one pass; a long pass is not read to its end.
        counts: samples wanted in each part.
        rest: samples wanted beside them.
        size: samples in a pass, if known.
    """
    needed = sum(counts) + rest
    most = max(2 * needed, FEW)
    if size is None or size <= most:
        seen, pieces = 0, [torch.empty(0, dtype=torch.int64)]
        for keys in read:
            seen += len(keys)
            pieces.append(keys)
            if seen > most:
                break
        else:
            return SampleSplit(_exact_bounds(torch.cat(pieces).sort().values.tolist(), counts))
        size = most
    shares = accumulate(_ample_share(count, needed, size) for count in counts)
    return SampleSplit(tuple(min(math.ceil(share * KEYS), KEYS) for share in shares))


def _ample_share(count: int, needed: int, size: int) -> float:
    """Return a share of the keys that almost certainly contains `count` samples.

    The number of samples in a share varies by about its square root.
    """
    if not count:
        return 0.0
    likely = max(count + MARGIN * math.sqrt(count), LEAST_PART)
    return max(count / min(size, AMPLE * needed), likely / size)


def _exact_bounds(ordered: list[int], counts: Sequence[int]) -> tuple[int, ...]:
    """Divide sorted keys by count, with equal keys together and a key in each part."""
    bounds, start = [], 0
    for count in counts:
        end = start + count
        bound = ordered[end] if end < len(ordered) else KEYS
        if count and start < len(ordered) and bound == ordered[start]:
            after = bisect_right(ordered, bound)
            bound = ordered[after] if after < len(ordered) else KEYS
        bounds.append(bound)
        start = bisect_left(ordered, bound)
    return tuple(bounds)
