"""The samples that recovery trains on, in the memory of the model's device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from chita.model.samples.batch import (
    Batch,
    bytes_of,
    differ_in_shape,
    first_samples,
    join,
    regrouped,
    tensors_of,
)
from chita.model.samples.transfer import sent
from chita.solver.matrix.memory import format_bytes, free_bytes
from chita.solver.ranks import ALONE, Ranks

logger = logging.getLogger(__name__)

BATCH = 128  # the samples of a step
LEAST_BATCH = 16
STEPS_IN_PASS = 8  # with few samples, a step uses fewer, so that a pass has this many steps
MEMORY_SHARE = 0.25  # of the free memory, at most, for all ranks together

Convert = Callable[[Batch], Batch]  # prepares the samples of a batch, such as by adding targets


def batch_size(samples: int, at_once: int) -> int:
    """Return the number of samples of a step.

    Args:
        samples: the number of samples to train on.
        at_once: the largest number of samples in a forward pass.
    """
    return max(1, min(BATCH, at_once, max(samples // STEPS_IN_PASS, LEAST_BATCH)))


def trained_at_once(at_once: int, first: Batch) -> int:
    """Return how many samples fit into a training step.

    Samples that are given one by one are trained on together, unless they are sequences of tokens.

    Args:
        at_once: the largest number of samples in a forward pass, from the batches of the user.
        first: a sample.
    """
    small = tensors_of(first.inputs)[0].is_floating_point()
    return max(at_once, LEAST_BATCH) if small else at_once


class SamplePool:
    """Samples that are drawn in random order, each at most once in a pass.

    All batches of one shape have the same size; a pass leaves out the samples that do not fill one.

    Args:
        parts: the samples; those of one part have the same shapes.
        at_once: the largest number of samples in a forward pass.

    Attributes:
        samples: the number of samples.
        batch: the number of samples of a step, over all ranks; a plan may reduce it.
    """

    def __init__(self, parts: Sequence[Batch], at_once: int) -> None:
        self._parts = parts
        self.samples = sum(part.size for part in parts)
        largest = max(part.size for part in parts)
        self.batch = min(batch_size(self.samples, at_once), largest)

    @property
    def uniform(self) -> bool:
        """Whether all batches have the same shapes."""
        return len(self._parts) == 1

    @property
    def example(self) -> Batch:
        """Some samples, in the form of the batches."""
        return self._parts[0]

    @property
    def place(self) -> torch.device:
        """The device that has the samples."""
        return tensors_of(self.example.content)[0].device

    def draw(self, generator: torch.Generator, ranks: Ranks = ALONE) -> Iterator[Batch]:
        """Yield this rank's part of each batch, pass after pass, without end.

        Args:
            generator: the same on all ranks; a generator of the CPU.
            ranks: the ranks that share each batch.
        """
        return (part.select(index) for part, index in self._drawn(generator, ranks))

    def draw_groups(
        self, generator: torch.Generator, ranks: Ranks, steps: int, count: int
    ) -> Iterator[list[Batch]]:
        """Yield the batches of some steps in lists of `count`, as views of one tensor.

        One copy serves all of them, which saves launches on a GPU. All batches must have the same
        shapes. The last list may be shorter.
        """
        drawn = islice(self._drawn(generator, ranks), steps)
        while group := list(islice(drawn, count)):
            joined = group[0][0].select(torch.cat([index for _, index in group]))
            yield list(joined.split(joined.size // len(group)))

    def _drawn(self, generator: torch.Generator, ranks: Ranks) -> Iterator[tuple[Batch, Tensor]]:
        """Yield the part and the index of each batch of `draw`."""
        while True:
            passes = [self._batches(part, generator) for part in self._parts]
            batches = [(part, index) for part, each in passes for index in each]
            for number in torch.randperm(len(batches), generator=generator).tolist():
                part, index = batches[number]
                yield part, _share(index, ranks)

    def _batches(self, part: Batch, generator: torch.Generator) -> tuple[Batch, tuple[Tensor, ...]]:
        """Return the indices of the batches of a part; all have the same size."""
        order = torch.randperm(part.size, generator=generator)
        size = min(self.batch, part.size)
        return part, torch.split(sent(order[: part.size // size * size], self.place), size)


def _share(index: Tensor, ranks: Ranks) -> Tensor:
    """Return the share of this rank; it has at least one sample."""
    share = max(len(index) // ranks.size, 1)
    start = min(ranks.rank * share, len(index) - share)
    return index[start : start + share]


def read_pool(
    batches: Iterable[Batch],
    convert: Convert,
    *,
    at_once: int,
    place: torch.device,
    ranks: Ranks = ALONE,
) -> SamplePool:
    """Read samples into memory, as many as fit on every rank.

    Each rank draws from the same permutation, so that all must have the same number of samples. The
    ranks are assumed to share the main memory, and to have a GPU each if they use GPUs.

    Args:
        batches: one pass over the samples.
        convert: prepares the samples; called with at most `at_once` of them.
        at_once: the largest number of samples in a forward pass.
        place: the device to store the samples on.
        ranks: the ranks that share each batch.
    """
    sharing = ranks.size if place.type == "cpu" else 1
    limit = MEMORY_SHARE * (free_bytes(place) or float("inf")) / sharing
    kept: list[Batch] = []
    used, full = 0, False
    for piece in regrouped(batches, at_once):
        kept.append(convert(piece.to(place)))
        used += bytes_of(kept[-1].content)
        if full := used > limit:
            break
    own = sum(piece.size for piece in kept)
    samples = ranks.least(own)
    if full or samples < own:
        logger.warning(
            "recovery trains on the first %d samples, which take %s: more do not fit",
            samples,
            format_bytes(used * samples / own),
        )
    return SamplePool(_joined(list(first_samples(kept, samples))), at_once)


def _joined(pieces: Sequence[Batch]) -> list[Batch]:
    """Join the pieces whose samples have the same shapes."""
    groups: list[list[Batch]] = []
    for piece in pieces:
        same = next((group for group in groups if not differ_in_shape(group[0], piece)), None)
        if same is None:
            groups.append([piece])
        else:
            same.append(piece)
    return [join(group) for group in groups]
