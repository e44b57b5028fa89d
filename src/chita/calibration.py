"""How the calibration samples are divided: the rows of A, and those held out to choose by."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from chita.batch import Batch
from chita.config import BATCH, PruneConfig
from chita.distill import distilled
from chita.errors import ChitaError
from chita.gradients import Loss
from chita.stream import SampleStream

MOST_SAMPLES = 1000  # rows of A, unless asked for: the paper's n
HELD_OUT = 1000  # samples that ridge="auto" holds out at least, if there are so many to spare
HELD_OUT_PART = 4  # and one for so many samples in A: fewer would not tell one lambda from the next
HELD_OUT_SHARE = 0.2  # the most of the data that it takes
# A guarded stage tries eight candidates or so; that they take no longer than the gradients, whose
# samples cost a forward pass and two as long backward, no more than this part is held out.
GUARD_PART = 3 / 8


@dataclass(frozen=True)
class Calibration:
    """The samples of a run.

    Attributes:
        stream: that they come from.
        rows: n, the rows of A.
        batch: m, the samples in a row.
        held_out: other samples, to choose by.
        at_once: how many samples a forward pass may take.
        loss: that is to stay small; None for the default.
        row_loss: that the rows of A are gradients of; None for the default.
    """

    stream: SampleStream
    rows: int
    batch: int
    held_out: list[Batch]
    at_once: int
    loss: Loss | None = None
    row_loss: Loss | None = None


def calibrate(
    model: nn.Module, batches: Iterable[Any], loss: Loss | None, config: PruneConfig
) -> Calibration:
    """What a run calibrates on: without curvature nothing is read.

    Args:
        model: as it is before pruning.
        batches: as a user gives them.
        loss: a function, if one was given.
        config: what was asked for.
    """
    if config.resolve_method().curvature == "none":
        return Calibration(SampleStream(()), 0, 1, [], 1)
    if config.loss is None:
        stream = SampleStream(batches, seed=config.seed)
        return replace(divide_samples(stream, config), loss=loss, row_loss=loss)
    stream, dense = distilled(model, batches, config.loss, config.seed)
    return replace(divide_samples(stream, config), loss=dense.divergence, row_loss=dense.row)


def divide_samples(stream: SampleStream, config: PruneConfig) -> Calibration:
    """How the samples of a stream are used."""
    wanted = config.samples or MOST_SAMPLES
    batch = config.batch or (_pick_batch(stream, wanted, config) if config.guarded else BATCH)
    spare = _to_hold_out(wanted * batch, config)
    have = stream.count(wanted * batch + spare)
    needed = (config.samples or 1) * batch
    to_spare = max(math.ceil(have * HELD_OUT_SHARE), have - wanted * batch)
    held = min(spare, to_spare, have - needed)
    if held < min(spare, 1):
        raise ChitaError(_too_few(have, needed, batch, bool(spare), config))
    rows = min(wanted, (have - held) // batch)
    at_once = stream.at_once(least=batch)
    held_out = stream.hold_out(held, at_once) if held else []
    return Calibration(stream, rows, batch, held_out, at_once)


def _too_few(have: int, needed: int, batch: int, hold_out: bool, config: PruneConfig) -> str:
    """What the samples do not suffice for, and what they would suffice for."""
    what = f"samples={config.samples} rows" if config.samples else "one row"
    more = f" and some to hold out for {config.held_out_for}" if hold_out else ""
    enough = int(have * (1 - HELD_OUT_SHARE if hold_out else 1) / (config.samples or 1))
    ways = ["more data", f"batch={enough} or less" if enough else "fewer samples, which are rows"]
    if config.held_out_for == "ridge='auto'":
        ways.append("ridge a number")
    return (
        f"{what} of {batch} samples each (batch={batch}) need {needed} samples{more}, but batches "
        f"hold {have}; give {', or '.join(ways)}"
    )


def _to_hold_out(samples: int, config: PruneConfig) -> int:
    if config.held_out_for is None:
        return 0
    part = samples // HELD_OUT_PART
    if config.guarded:
        return max(part, min(HELD_OUT, int(samples * GUARD_PART)))
    return max(HELD_OUT, part)


def _pick_batch(stream: SampleStream, wanted: int, config: PruneConfig) -> int:
    """m: 16 if the data can give the rows wanted, less if they are few.

    Every stage is to see all samples there are, if need be in fewer rows; but rows that were asked
    for are given.
    """
    most = wanted * BATCH
    have = stream.count(most + _to_hold_out(most, config))
    in_a_row = have * (1 - HELD_OUT_SHARE) / wanted
    batch = math.ceil(in_a_row) if config.samples is None else int(in_a_row)
    return min(max(batch, 1), BATCH)
