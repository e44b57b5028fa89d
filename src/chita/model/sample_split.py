"""Which samples are held out: a rule on their keys, the same in every pass over the data."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from chita.model.sample_keys import KEYS

FEW = 256  # samples that are always counted, since shares of so few are not met by chance
AMPLE = 4  # times the samples that are needed: of more, no larger share is held out
MARGIN = 4  # standard deviations by which a share is larger than what is wanted of it
LEAST_PART = 32  # samples that a part is cut for at least: a share of fewer may turn out empty


@dataclass(frozen=True)
class SampleSplit:
    """Parts of the samples, by their keys.

    Attributes:
        bounds: part i has the keys from bounds[i - 1], or 0, up to bounds[i]; the rest follows.
        excluded: keys that belong to no part and not to the rest either.
    """

    bounds: tuple[int, ...] = ()
    excluded: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    @property
    def rest(self) -> int:
        """The number of the part that is not held out."""
        return len(self.bounds)

    def part_of(self, keys: Tensor) -> Tensor:
        """Return the part that each key belongs to, (samples,); -1 for excluded ones."""
        part = torch.bucketize(keys, torch.tensor(self.bounds, dtype=torch.int64), right=True)
        return part.masked_fill_(torch.isin(keys, self.excluded), -1)


NOTHING_HELD_OUT = SampleSplit()


def split_keys(
    read: Iterable[Tensor], counts: Sequence[int], *, rest: int, size: int | None
) -> SampleSplit:
    """Cut the keys so that each part gets its count, and the rest what it needs.

    Where a pass has at most twice the samples that are needed, all keys are looked at and every
    part gets its count, or a little less where samples have the same content, which stay together.
    Of larger data each part gets a share of the keys that gives it enough.

    Args:
        read: the keys of one pass; it is not read to its end if that is far.
        counts: samples wanted in each part.
        rest: samples wanted beside them.
        size: samples in a pass, if it is known.
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
    """Return the share of the keys in which `count` samples are found all but surely.

    The number that is found varies by its square root.
    """
    if not count:
        return 0.0
    likely = max(count + MARGIN * math.sqrt(count), LEAST_PART)
    return max(count / min(size, AMPLE * needed), likely / size)


def _exact_bounds(ordered: list[int], counts: Sequence[int]) -> tuple[int, ...]:
    """Cut sorted keys so that each part has its count: fewer if equal keys would be cut, but one
    key at least."""
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
