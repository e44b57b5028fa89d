"""Divide the calibration samples: rows of A, samples to choose by, and samples to measure on.

The loss on samples outside A decides what a stage does. The best of many candidates looks better on
these samples than it is. A third part therefore gives the loss that is reported and decides whether
the floor holds. It is not used for any other choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from chita.errors import ChitaError
from chita.model.distill import InputStream, distilled
from chita.model.losses import Loss, ignored_label
from chita.model.samples.arrays import InputSpec
from chita.model.samples.batch import Batch
from chita.model.samples.stream import SampleStream
from chita.pruning.config import PruneConfig
from chita.pruning.stage_policy import StagePolicy, policy_for

CHOOSING = 0  # the number of the part to choose by; that to measure on follows
CHOICE_SHARE = 0.15  # the largest fraction of the data to choose by
MEASURE_SHARE = 0.1  # the largest fraction to measure on, up to the number of samples to choose by
FLOOR_SHARE = 0.2  # with a floor, which must hold by a standard error


@dataclass(frozen=True)
class Calibration:
    """The samples of a run.

    Attributes:
        stream: the source of the samples of A.
        rows: n, the rows of A.
        batch: m, the samples in a row.
        held_out: other samples, to choose by.
        measured: a third part, to measure on; it is not used for any choice except the floor.
        at_once: the largest number of samples in a forward pass.
        loss: the loss of the network; None for the default.
        row_loss: the loss whose gradients are the rows of A; None for the default.
        other: the source of the held-out samples, if it is not `stream`.
        trained_on: about how many samples there are to train on; more than are counted may follow.
    """

    stream: SampleStream
    rows: int
    batch: int
    held_out: list[Batch]
    measured: list[Batch]
    at_once: int
    loss: Loss | None = None
    row_loss: Loss | None = None
    other: SampleStream | None = None
    trained_on: int = 0

    def joined(self) -> Calibration:
        """Return samples of A that include those to choose by, for use after the last choice."""
        stream = self.stream.releasing(CHOOSING)
        together = self.rows * self.batch + sum(piece.size for piece in self.held_out)
        return replace(self, stream=stream, rows=stream.count(together) // self.batch, held_out=[])


def calibrate(
    model: nn.Module,
    batches: Any,
    loss: Loss | None,
    config: PruneConfig,
    held_out: Any = None,
    p: int = 0,
) -> Calibration:
    """Read the samples of a run; a method without curvature reads none.

    Args:
        model: the model before pruning.
        batches: the user's batches.
        loss: the user's loss function, if there is one.
        config: the options of the run.
        held_out: other samples to choose by and to measure on; some of `batches` by default.
        p: the prunable weights.

    Raises:
        ChitaError: there are too few samples, or `held_out` is given to a run that does not use it.
    """
    if held_out is not None and policy_for(config).held_out_for is None:
        raise ChitaError(
            f"held_out is not used with method={config.method!r} and ridge={config.ridge!r}; omit "
            "it, or give ridge='auto'"
        )
    if not config.reads_samples:
        return Calibration(SampleStream(()), 0, 1, [], [], 1)
    spec = InputSpec.of(model)
    if not config.distills:
        ignored = ignored_label(loss)
        stream = SampleStream(batches, config.seed, spec=spec, ignored=ignored)
        other = None
        if held_out is not None:
            other = SampleStream(held_out, config.seed, "held_out", spec, ignored=ignored)
        return replace(divide_samples(stream, config, other, p), loss=loss, row_loss=loss)
    assert config.loss is not None
    inputs, dense = distilled(model, batches, config.loss, config.seed)
    other = None
    if held_out is not None:
        other = InputStream(held_out, config.seed, "held_out", spec)
        other.dense = dense
    divided = divide_samples(inputs, config, other, p)
    return replace(divided, loss=dense.divergence, row_loss=dense.row)


def divide_samples(
    stream: SampleStream, config: PruneConfig, other: SampleStream | None = None, p: int = 0
) -> Calibration:
    """Divide the samples of a stream, or of a stream and another one that is held out.

    Args:
        stream: the calibration samples.
        config: the options of the run.
        other: the user's held-out samples, if there are any.
        p: the prunable weights.

    Raises:
        ChitaError: there are too few samples.
    """
    policy = policy_for(config, p)
    wanted = config.samples or policy.rows_for(stream.count(policy.rows * policy.batch))
    share = CHOICE_SHARE + _measure_share(config) if other is None else 0.0
    # A sequence of a language model is a mean over its tokens already.
    batch = config.batch or (1 if stream.spec.predicts else policy.batch)
    if config.batch is None and policy.adapts_batch:
        batch = stream.fitting(_pick_batch(stream, wanted, policy, share))
    choice = policy.samples_to_choose_by(wanted * batch)
    if other is not None:
        return _with_other(stream, other, batch, choice, policy)
    have = stream.count(max(wanted * batch + 2 * choice, _enough_to_train(choice, config)))
    needed = (config.samples or 1) * batch
    held, measured = _counts(have, wanted * batch, needed, choice, config)
    if held < min(choice, 1) or (config.floor is not None and not measured):
        raise ChitaError(_too_few(have, needed, batch, policy))
    at_once = stream.at_once(least=batch)
    rows = min(wanted, (have - held - measured) // batch)
    choosing: list[Batch] = []
    measuring: list[Batch] = []
    if held:
        pieces = at_once // batch * batch  # whole mini-batches, whose losses are compared
        rest = have - held - measured if config.recovers else rows * batch
        choosing, measuring = stream.hold_out((held, measured), pieces, rest=rest, unit=batch)
        if not choosing or (config.floor is not None and not measuring):
            raise ChitaError(
                f"batches contain {have} samples of equal content: none can be held out for "
                f"{policy.held_out_for}; give more data"
            )
        rows = min(rows, stream.count(rows * batch) // batch)
    if rows < (config.samples or 1):
        raise ChitaError(
            f"only {stream.count(needed)} of {have} samples differ from those that are held out "
            f"for {policy.held_out_for}, but {needed} are needed; give more data"
        )
    trained_on = have - held - measured
    return Calibration(stream, rows, batch, choosing, measuring, at_once, trained_on=trained_on)


def _counts(
    have: int, wanted: int, needed: int, choice: int, config: PruneConfig
) -> tuple[int, int]:
    """Return how many samples to choose by, and how many to measure on.

    Args:
        have: the number of samples.
        wanted: the samples that the rows use at most.
        needed: the samples that the rows need at least.
        choice: the samples to choose by, or to measure on, at most.
        config: the options of the run.
    """
    to_spare = 0 if config.recovers else have - wanted  # neither rows nor training use these
    held = min(choice, max(math.ceil(have * CHOICE_SHARE), to_spare // 2), have - needed)
    measured = max(int(have * _measure_share(config)), to_spare - held)
    return held, min(choice, measured, have - needed - held)


def _enough_to_train(choice: int, config: PruneConfig) -> int:
    """Return how many samples a run with recovery needs for full parts to choose by and measure on.

    Args:
        choice: the largest size of each part.
        config: the options of the run.
    """
    return math.ceil(choice / min(CHOICE_SHARE, MEASURE_SHARE)) if config.recovers else 0


def _measure_share(config: PruneConfig) -> float:
    return MEASURE_SHARE if config.floor is None else FLOOR_SHARE


def _with_other(
    stream: SampleStream, other: SampleStream, batch: int, choice: int, policy: StagePolicy
) -> Calibration:
    """Take the rows from a stream, and the samples to choose by and measure on from another.

    The held-out samples are divided into halves of equal size.
    """
    have = other.count(2 * choice)
    at_once = stream.at_once(least=batch)
    held = -(-have // 2)
    pieces = at_once // batch * batch
    choosing, measuring = other.hold_out((held, have - held), pieces, rest=0, unit=batch)
    stream.exclude([*choosing, *measuring], unit=batch)
    config = policy.config
    wanted = config.samples or policy.rows_for(stream.count(policy.rows * policy.batch))
    rows = stream.count(wanted * batch) // batch
    if rows < (config.samples or 1) or not choosing or (config.floor and not measuring):
        raise ChitaError(
            f"{(config.samples or 1) * batch} samples for the rows of A (batch={batch}) and some "
            f"held-out samples are needed, but batches contains {stream.count(wanted * batch)} "
            f"that are not in held_out, and held_out contains {have}; give more data"
        )
    return Calibration(
        stream, rows, batch, choosing, measuring, at_once, other=other, trained_on=rows * batch
    )


def _too_few(have: int, needed: int, batch: int, policy: StagePolicy) -> str:
    """Return an error message with the number of missing samples and the remedies."""
    config, purpose = policy.config, policy.held_out_for
    rows = config.samples or 1
    what = f"samples={rows} rows need" if rows > 1 else "a row of A needs"
    more = f" and some to hold out for {purpose}" if purpose else ""
    held = CHOICE_SHARE + _measure_share(config) if purpose else 0.0
    enough = int(have * (1 - held) / rows)
    ways = ["give more data"]
    if 1 <= enough < batch:
        ways.append(f"set batch={enough}" + (" or less" if enough > 1 else ""))
    elif rows > 1:
        ways.append("lower samples, the number of rows")
    if purpose == "ridge='auto'" and have >= needed:
        ways.append("set ridge to a number")
    return (
        f"{what} {_samples(needed)} (batch={batch}){more}, but batches contains "
        f"{_samples(have)}; {', or '.join(ways)}"
    )


def _samples(count: int) -> str:
    return "1 sample" if count == 1 else f"{count} samples"


def _pick_batch(stream: SampleStream, wanted: int, policy: StagePolicy, held: float) -> int:
    """Return m: the default if there are enough samples for the rows wanted, and fewer otherwise.

    Every stage uses all samples, if necessary in fewer rows, unless the number of rows is given.

    Args:
        stream: the samples.
        wanted: n.
        policy: the policy of the run.
        held: the fraction of the samples that is held out if there are few.
    """
    most = wanted * policy.batch
    have = stream.count(most + 2 * policy.samples_to_choose_by(most))
    in_a_row = have * (1 - held) / wanted
    batch = math.ceil(in_a_row) if policy.config.samples is None else int(in_a_row)
    return min(max(batch, 1), policy.batch)
