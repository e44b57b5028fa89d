"""Fewer samples to choose by and in the rows of A, for a network that is slow on its machine.

A run with recovery computes some dozens of held-out losses and a matrix A in each stage. For a
large network on a small machine, these would take many times as long as the training. Their
samples are therefore limited by the time of the budget, like those of a training step.
"""

from __future__ import annotations

from dataclasses import replace

from chita.model.samples.batch import first_samples
from chita.pruning.budget import Budget
from chita.pruning.calibration import Calibration

CHECK_SHARE = 1 / 50  # of the time of the budget, for a held-out loss
LEAST_CHECKED = 64  # samples of a held-out loss
GRADIENTS_SHARE = 1 / 12  # of the time of the budget, for the gradients of a stage
GRADIENT = 8.0  # a sample gradient takes about as long as this many forward passes
LEAST_IN_ROW = 8  # samples in a row of A


def checked_samples(budget: Budget, sample_seconds: float) -> float:
    """Return how many samples a held-out loss may use; infinite for a number of steps.

    Args:
        budget: the budget.
        sample_seconds: the seconds of a forward pass for one sample.
    """
    return max(CHECK_SHARE * budget.seconds / max(sample_seconds, 1e-9), LEAST_CHECKED)


def fewer_samples(
    data: Calibration, budget: Budget, sample_seconds: float, *, keep_batch: bool
) -> Calibration:
    """Return the samples of a run, limited by the time of its budget.

    Args:
        data: the samples.
        budget: the budget.
        sample_seconds: the seconds of a forward pass for one sample.
        keep_batch: whether the user or the method determines m, the samples in a row of A.
    """
    affordable = budget.seconds / max(sample_seconds, 1e-9)  # infinite for a number of steps
    checked = checked_samples(budget, sample_seconds)
    in_a_row = max(GRADIENTS_SHARE * affordable / (GRADIENT * max(data.rows, 1)), LEAST_IN_ROW)
    return replace(
        data,
        held_out=list(first_samples(data.held_out, checked)),
        batch=data.batch if keep_batch else _divisor(data.batch, in_a_row),
    )


def _divisor(batch: int, most: float) -> int:
    """Return the largest divisor of m up to a number: mini-batches are divided, never cut."""
    return max(m for m in range(1, batch + 1) if batch % m == 0 and m <= max(most, 1))
