"""chita.sensitivity: prune one layer at a time, and measure the loss."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from chita.errors import ChitaError, is_function_or_none, is_seed, require
from chita.model.accuracy import count_right
from chita.model.checks import check_model
from chita.model.convolutions import convolution_trials
from chita.model.distill import default_loss, distilled
from chita.model.freed_memory import freed_memory_reused
from chita.model.losses import Loss, cross_entropy, ignored_label, mean_loss
from chita.model.named_losses import DISTILLED, resolve_loss
from chita.model.samples.arrays import InputSpec
from chita.model.samples.batch import Batch
from chita.model.samples.stream import SampleStream
from chita.model.weights import Patterns, Weight, Weights, check_finite
from chita.pruning.config import kept_weights
from chita.pruning.options.method import count
from chita.pruning.sensitivity.result import LayerCurve, LayerScore, SensitivityResult
from chita.solver.constraints.constraint import hard_threshold
from chita.solver.precision import own_precision

LADDER = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)


@own_precision()  # also of the dense outputs, which "distill" compares with
def sensitivity(
    model: nn.Module,
    batches: Any,
    *,
    loss: Loss | str | None = None,
    sparsities: Sequence[float] = LADDER,
    samples: int = 1000,
    include: Patterns = None,
    exclude: Patterns = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> SensitivityResult:
    """Prune each layer alone, by magnitude, and measure the loss of the network.

    The samples are the same each time, and the other layers stay dense. This takes one pass over
    the samples, forward only, for each layer and sparsity. The model is not changed.

    Args:
        model: any trained module; its device is used.
        batches: calibration data, as for `chita.prune`.
        loss: a name such as "mse", a loss of torch.nn or a function, as for `chita.prune`; the
            cross-entropy by default. "distill" and "distill-mse" are the divergence from the dense
            outputs.
        sparsities: the ladder, in increasing order, each in (0, 1).
        samples: the largest number of samples to use.
        include: glob pattern(s) of parameter names, instead of the weights of Linear and
            convolution layers.
        exclude: glob pattern(s) of parameter names to leave out.
        seed: the random seed for the order in which a list of batches is read.
        progress: a function that is called with the number of finished passes over the samples, and
            of all passes.

    Raises:
        ChitaError: an argument, the model or the data are wrong.
    """
    began = time.perf_counter()
    ladder = _check_ladder(sparsities)
    count("samples", samples)
    require("seed", seed, is_seed, "an integer from 0 to 2**64 - 1")
    require("progress", progress, is_function_or_none, "a function of two numbers, or None")
    check_model(model)
    weights = Weights(model, include, exclude)
    check_finite(weights)
    function = resolve_loss(loss)
    if loss is None:
        loss = default_loss(model, batches)
    stream: SampleStream
    if isinstance(loss, str) and loss in DISTILLED:
        stream, dense_network = distilled(model, batches, loss, seed)
        function = dense_network.divergence
    else:
        stream = SampleStream(
            batches, seed, spec=InputSpec.of(model), ignored=ignored_label(function)
        )
    samples = stream.count(samples)
    fixed = list(stream.take(samples, stream.at_once()))
    total = len(weights.entries) * len(ladder)
    with convolution_trials(False), freed_memory_reused():
        dense = _score(model, fixed, function)
        if not math.isfinite(dense.loss):
            raise ChitaError(f"the loss of the dense model is {dense.loss}; it must be finite")
        curves: list[LayerCurve] = []
        for weight in weights:
            scores: list[LayerScore] = []
            for sparsity in ladder:
                with weights.temporarily(_pruned(weights, weight, sparsity)):
                    scores.append(_score(model, fixed, function))
                if progress is not None:
                    progress(len(curves) * len(ladder) + len(scores), total)
            shape = tuple(weight.parameter.shape)
            curves.append(LayerCurve(weight.name, shape, weight.parameter.numel(), tuple(scores)))
    return SensitivityResult(ladder, dense, tuple(curves), samples, time.perf_counter() - began)


def _pruned(weights: Weights, weight: Weight, sparsity: float) -> Tensor:
    """Return the dense weights, (p,), with those of one layer pruned by magnitude."""
    w = weights.vector()
    layer = w[weight.span]
    w[weight.span] = hard_threshold(layer, kept_weights(len(layer), sparsity))[0]
    return w


def _check_ladder(sparsities: Sequence[float]) -> tuple[float, ...]:
    what = f"increasing numbers in (0, 1), such as {list(LADDER[:3])}"
    try:
        ladder = tuple(float(sparsity) for sparsity in sparsities)
    except (TypeError, ValueError, OverflowError):
        raise ChitaError(f"sparsities must be {what}, got {sparsities!r}") from None
    rising = all(a < b for a, b in zip((0.0, *ladder), (*ladder, 1.0), strict=True))
    require("sparsities", list(ladder), lambda given: bool(given) and rising, what)
    return ladder


def _score(model: nn.Module, samples: Sequence[Batch], loss: Loss | None) -> LayerScore:
    """Compute the loss and the accuracy in one pass; a model with its own loss has no accuracy."""
    if isinstance(samples[0].content, dict):
        return LayerScore(mean_loss(model, samples, loss), None)
    counting = _CountingLoss(loss or cross_entropy)
    return LayerScore(mean_loss(model, samples, counting), counting.accuracy)


class _CountingLoss:
    """A loss that also counts correct answers."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._counted: list[tuple[int, int] | None] = []

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        self._counted.append(count_right(outputs, targets))
        return self._loss(outputs, targets)

    @property
    def accuracy(self) -> float | None:
        """The accuracy so far in percent; None if the outputs are not classes."""
        known = [counted for counted in self._counted if counted is not None]
        right, total = (sum(numbers) for numbers in zip(*known, strict=True)) if known else (0, 0)
        return 100 * right / total if total and len(known) == len(self._counted) else None
