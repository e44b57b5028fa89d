"""The training of `chita.recover`: its samples, what it trains on, and how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.checks import check_model
from chita.model.distill import DenseNetwork, InputStream
from chita.model.forward import answer_of, evaluating
from chita.model.losses import Loss, ignored_label
from chita.model.named_losses import DISTILL_MSE, resolve_loss
from chita.model.samples.arrays import InputSpec
from chita.model.samples.batch import Batch, first_samples
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.pruning.budget import Budget, Costs
from chita.pruning.fewer_samples import checked_samples
from chita.pruning.forecast import Forecast
from chita.pruning.held_out import HeldOut
from chita.pruning.rank_agreement import agree_on_held_out
from chita.pruning.recovery.broken_samples import check_samples
from chita.pruning.recovery.guarded_training import GuardedTraining, Recovered
from chita.pruning.recovery.objective import RecoveryTask, distillation, own_loss
from chita.pruning.recovery.planning import TrainingBudget
from chita.pruning.recovery.pool import trained_at_once
from chita.pruning.recovery.training import RecoveryTraining
from chita.solver.ranks import Ranks

HELD_OUT_SHARE = 0.15
MOST_HELD_OUT = 1000


@dataclass(frozen=True)
class RecoverOptions:
    """The options of `chita.recover`; see there.

    Attributes:
        teacher: the dense network; None to train on a loss.
        loss: the loss, or how the outputs of the teacher are compared.
        budget: how long to train.
        limits: the same as limits on the time and the training.
        seed: the random seed.
        sync: whether all ranks take the held-out samples of rank 0.
    """

    teacher: nn.Module | None
    loss: Loss | str
    budget: float | str
    limits: Budget
    seed: int
    sync: bool


class SingleRecovery:
    """The training of one network, which does not follow a plan of several stages.

    Args:
        model: the pruned model, which is trained in place.
        weights: the weights that keep their zeros, p in total.
        batches: the samples of the user.
        options: the options.
        ranks: the ranks that share each batch.

    Attributes:
        samples: the number of samples that are trained on.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: Weights,
        batches: Any,
        options: RecoverOptions,
        ranks: Ranks,
    ) -> None:
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ChitaError(
                "model has no parameter that requires gradients, so there is nothing to train; "
                "call model.requires_grad_(True)"
            )
        self._model, self._weights, self._options, self._ranks = model, weights, options, ranks
        self._stream, dense = _open(model, batches, options)
        self._loss = resolve_loss(options.loss) if dense is None else dense.divergence
        held_out = self._held_out()
        task = self._task(dense)
        self.samples = task.pool.samples
        trained = [w.parameter for w in weights if w.parameter.requires_grad]
        training = RecoveryTraining(model, trained, task, ranks=ranks, seed=options.seed)
        self._training = GuardedTraining(model, weights, training, held_out.losses_now)
        self._budget = TrainingBudget(options.limits, task.pool, ranks)

    def run(self, kept: Tensor, began: float, forecast: Forecast) -> tuple[Recovered, float]:
        """Train the network; restore it if the held-out loss does not fall.

        Args:
            kept: the support, (p,) bool.
            began: when the call began, by `time.perf_counter`.
            forecast: shows the progress.

        Returns:
            The outcome, and the relative rate.

        Raises:
            ChitaError: no time is left after the range test, or a loss is not finite.
        """
        forecast.begin("range test")
        forecast.expect(self._options.limits.planned_seconds)
        training = self._training
        rate = self._budget.find_rate(training, self._weights.vector(), self._check_samples)
        costs = Costs(training.step_seconds, training.check_seconds, stages=1)
        steps = self._budget.steps_to_train(costs, began)
        forecast.expect(costs.seconds(steps))
        forecast.begin_training(steps, costs.step)
        found = training.run(kept, steps=steps, rate=rate, key=0, progress=forecast.step)
        if not found.finite:
            self._check_samples()
        return found, rate

    def _held_out(self) -> HeldOut:
        """Hold out samples, no more than the time allows, the same on all ranks."""
        options, ranks, stream = self._options, self._ranks, self._stream
        held = agree_on_held_out(
            ranks, _hold_out(stream), labelled=options.teacher is None, sync=options.sync
        )
        if ranks.rank > 0 and options.sync:
            stream.exclude(held)
        every = self._losses_on(held)
        seconds = ranks.from_first(every.sample_seconds)
        return self._losses_on(list(first_samples(held, checked_samples(options.limits, seconds))))

    def _losses_on(self, held: list[Batch]) -> HeldOut:
        return HeldOut(self._model, self._weights, held, self._loss, self._ranks, fast=True)

    def _task(self, dense: DenseNetwork | None) -> RecoveryTask:
        """Read the samples to train on, with the answers of the teacher if there is one."""
        stream, place = self._stream, self._weights.device
        first = stream.sample
        assert first is not None  # samples were held out
        at_once = trained_at_once(stream.at_once(), first)
        samples: Iterator[Batch] = first_samples(stream.one_pass(), self._options.limits.samples)
        ranks = self._ranks
        if dense is None:
            return own_loss(samples, self._loss, at_once=at_once, place=place, ranks=ranks)
        return distillation(dense, samples, first, at_once=at_once, place=place, ranks=ranks)

    def _check_samples(self) -> None:
        """Raise an error that names a sample whose loss is not finite, if there is one."""
        check_samples(self._model, self._stream, self._loss, self.samples)


def _open(
    model: nn.Module, batches: Any, options: RecoverOptions
) -> tuple[SampleStream, DenseNetwork | None]:
    """Return the stream of the samples, and the teacher, which answers those of its stream."""
    spec = InputSpec.of(model)
    if options.teacher is None:
        ignored = ignored_label(resolve_loss(options.loss))
        return SampleStream(batches, options.seed, spec=spec, ignored=ignored), None
    stream = InputStream(batches, options.seed, spec=spec)
    squares = options.loss == DISTILL_MSE
    stream.dense = _teacher(options.teacher, model, stream.peek(), squares=squares)
    return stream, stream.dense


def _hold_out(stream: SampleStream) -> list[Batch]:
    """Hold out a share of the samples, to compare the model before and after the training."""
    have = stream.count(int(MOST_HELD_OUT / HELD_OUT_SHARE))
    if have < 2:
        raise ChitaError(f"batches must contain at least 2 samples, got {have}")
    count = min(MOST_HELD_OUT, max(1, int(HELD_OUT_SHARE * have)))
    (held,) = stream.hold_out((count,), stream.at_once(), rest=have - count)
    if not (held and stream.count(1)):
        raise ChitaError(
            f"batches contain {have} samples of equal content: none can be held out to guard the "
            "training; give more data"
        )
    return held


def _teacher(
    teacher: nn.Module, model: nn.Module, first: Batch | None, *, squares: bool
) -> DenseNetwork:
    """Return the teacher; its answers must have the form of the model's."""
    if first is None:
        raise ChitaError("there are no samples in batches; pass at least one")
    sample = first[:1]
    with torch.no_grad(), evaluating(model):
        own = answer_of(sample.to(next(model.parameters()).device).outputs(model))
    try:
        check_model(teacher)
        dense = DenseNetwork(teacher, first, 0, squares=squares)
    except ChitaError as error:
        raise ChitaError(
            f"teacher must be a network that takes the inputs of the model, got "
            f"{type(teacher).__name__}: {error}"
        ) from error
    wanted = dense.answers(sample).content[1]["answer"]  # type: ignore[index]
    if own.shape != wanted.shape:
        raise ChitaError(
            f"teacher gives outputs of shape {tuple(wanted.shape)} and model of shape "
            f"{tuple(own.shape)}: they must be the same; give the network before pruning as teacher"
        )
    return dense
