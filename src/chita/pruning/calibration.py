"""Divide the calibration samples: rows of A, samples to choose by, and samples to measure on.

What a stage does is chosen by the loss on samples that are in no row of A. The best of many
candidates looks better on those than it is, so that a third part, which chooses nothing, gives the
loss that is reported and decides whether a floor is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from chita.errors import ChitaError
from chita.model.batch import Batch
from chita.model.distill import InputStream, distilled
from chita.model.losses import Loss
from chita.model.stream import SampleStream
from chita.pruning.config import PruneConfig
from chita.pruning.options import BATCH

MOST_SAMPLES = 1000  # rows of A, unless asked for: the paper's n
HELD_OUT = 1000  # samples that ridge="auto" holds out at least, if there are so many to spare
HELD_OUT_PART = 4  # and one for so many samples in A: fewer would not tell one lambda from the next
CHOICE_SHARE = 0.15  # the most of the data that it takes
MEASURE_SHARE = 0.1  # the most of the data to measure on, beside as many as there are to choose by
FLOOR_SHARE = 0.2  # the same where a floor is checked, which must be kept by a standard error
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
        measured: a third part, which chooses nothing: the loss that is reported is taken on it.
        at_once: how many samples a forward pass may take.
        loss: that is to stay small; None for the default.
        row_loss: that the rows of A are gradients of; None for the default.
    """

    stream: SampleStream
    rows: int
    batch: int
    held_out: list[Batch]
    measured: list[Batch]
    at_once: int
    loss: Loss | None = None
    row_loss: Loss | None = None


def calibrate(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Loss | None,
    config: PruneConfig,
    held_out: Iterable[Any] | None = None,
) -> Calibration:
    """Read what a run calibrates on; a method without curvature reads nothing.

    Args:
        model: as it is before pruning.
        batches: as a user gives them.
        loss: a function, if one was given.
        config: what was asked for.
        held_out: other samples to choose by and to measure on; some of `batches` by default.

    Raises:
        ChitaError: the samples do not suffice, or held-out ones are of no use.
    """
    if held_out is not None and config.held_out_for is None:
        raise ChitaError(
            f"held_out is for runs that choose something by it, and method={config.method!r} with "
            f"ridge={config.ridge!r} chooses nothing; leave it out, or give ridge='auto'"
        )
    if not config.resolve_method().curvature.reads_samples:
        return Calibration(SampleStream(()), 0, 1, [], [], 1)
    if config.loss is None:
        stream = SampleStream(batches, config.seed)
        other = None if held_out is None else SampleStream(held_out, config.seed, "held_out")
        return replace(divide_samples(stream, config, other), loss=loss, row_loss=loss)
    inputs, dense = distilled(model, batches, config.loss, config.seed)
    other = None
    if held_out is not None:
        other = InputStream(held_out, config.seed, "held_out")
        other.dense = dense
    divided = divide_samples(inputs, config, other)
    return replace(divided, loss=dense.divergence, row_loss=dense.row)


def divide_samples(
    stream: SampleStream, config: PruneConfig, other: SampleStream | None = None
) -> Calibration:
    """Decide how the samples of a stream are used, and of another one that is held out."""
    wanted = config.samples or MOST_SAMPLES
    share = CHOICE_SHARE + _measure_share(config) if other is None else 0.0
    batch = config.batch or BATCH
    if config.batch is None and config.guarded:
        batch = _pick_batch(stream, wanted, config, share)
    choice = _to_choose_by(wanted * batch, config)
    if other is not None:
        return _with_other(stream, other, batch, choice, config)
    have = stream.count(wanted * batch + 2 * choice)
    needed = (config.samples or 1) * batch
    held, measured = _counts(have, wanted * batch, needed, choice, config)
    if held < min(choice, 1) or (config.floor is not None and not measured):
        raise ChitaError(_too_few(have, needed, batch, bool(choice), config))
    at_once = stream.at_once(least=batch)
    rows = min(wanted, (have - held - measured) // batch)
    choosing: list[Batch] = []
    measuring: list[Batch] = []
    if held:
        pieces = at_once // batch * batch  # of whole mini-batches, whose losses are compared
        choosing, measuring = stream.hold_out(
            (held, measured), pieces, rest=rows * batch, unit=batch
        )
        if not choosing or (config.floor is not None and not measuring):
            raise ChitaError(
                f"batches hold {have} samples of the same content: none can be held out for "
                f"{config.held_out_for}; give more data"
            )
        rows = min(rows, stream.count(rows * batch) // batch)
    if rows < (config.samples or 1):
        raise ChitaError(
            f"only {stream.count(needed)} of {have} samples differ from those that are held out "
            f"for {config.held_out_for}, and {needed} are needed; give more data"
        )
    return Calibration(stream, rows, batch, choosing, measuring, at_once)


def _counts(
    have: int, wanted: int, needed: int, choice: int, config: PruneConfig
) -> tuple[int, int]:
    """Return how many samples choose, and how many measure.

    Args:
        have: all samples.
        wanted: those that the rows would use at most.
        needed: those that the rows must have.
        choice: those that choose, and measure, at most.
        config: what was asked for.
    """
    to_spare = have - wanted  # no row would have them anyway
    held = min(choice, max(math.ceil(have * CHOICE_SHARE), to_spare // 2), have - needed)
    measured = max(int(have * _measure_share(config)), to_spare - held)
    return held, min(choice, measured, have - needed - held)


def _measure_share(config: PruneConfig) -> float:
    return MEASURE_SHARE if config.floor is None else FLOOR_SHARE


def _with_other(
    stream: SampleStream, other: SampleStream, batch: int, choice: int, config: PruneConfig
) -> Calibration:
    """Take all rows from the stream, and what is held out from another one, half and half."""
    have = other.count(2 * choice)
    at_once = stream.at_once(least=batch)
    held = -(-have // 2)
    pieces = at_once // batch * batch
    choosing, measuring = other.hold_out((held, have - held), pieces, rest=0, unit=batch)
    stream.exclude([*choosing, *measuring], unit=batch)
    wanted = config.samples or MOST_SAMPLES
    rows = stream.count(wanted * batch) // batch
    if rows < (config.samples or 1) or not choosing or (config.floor and not measuring):
        raise ChitaError(
            f"{config.samples or 'one'} rows of {batch} samples each (batch={batch}) and held-out "
            f"samples beside them are needed, but batches hold {stream.count(wanted * batch)} "
            f"samples that are not in held_out, and held_out holds {have}; give more data"
        )
    return Calibration(stream, rows, batch, choosing, measuring, at_once)


def _too_few(have: int, needed: int, batch: int, hold_out: bool, config: PruneConfig) -> str:
    """What the samples do not suffice for, and what they would suffice for."""
    what = f"samples={config.samples} rows" if config.samples else "one row"
    more = f" and some to hold out for {config.held_out_for}" if hold_out else ""
    held = CHOICE_SHARE + _measure_share(config) if hold_out else 0.0
    enough = int(have * (1 - held) / (config.samples or 1))
    ways = ["more data", f"batch={enough} or less" if enough else "fewer samples, which are rows"]
    if config.held_out_for == "ridge='auto'":
        ways.append("ridge a number")
    return (
        f"{what} of {batch} samples each (batch={batch}) need {needed} samples{more}, but batches "
        f"hold {have}; give {', or '.join(ways)}"
    )


def _to_choose_by(samples: int, config: PruneConfig) -> int:
    if config.held_out_for is None:
        return 0
    part = samples // HELD_OUT_PART
    if config.guarded:
        return max(part, min(HELD_OUT, int(samples * GUARD_PART)), 1)
    return max(HELD_OUT, part)


def _pick_batch(stream: SampleStream, wanted: int, config: PruneConfig, held: float) -> int:
    """m: 16 if the data can give the rows wanted, less if they are few.

    Every stage is to see all samples there are, if need be in fewer rows; but rows that were asked
    for are given.

    Args:
        stream: the samples.
        wanted: n.
        config: what was asked for.
        held: the share of the samples that is held out, where they are few.
    """
    most = wanted * BATCH
    have = stream.count(most + 2 * _to_choose_by(most, config))
    in_a_row = have * (1 - held) / wanted
    batch = math.ceil(in_a_row) if config.samples is None else int(in_a_row)
    return min(max(batch, 1), BATCH)
