"""Top-1 accuracy of a classifier."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.forward import device_of, evaluating, logits_of
from chita.model.losses import labels_for
from chita.model.samples.arrays import IGNORED
from chita.model.samples.batch import describe
from chita.model.samples.given_data import read_batches
from chita.solver.ranks import ALONE, Ranks


@torch.no_grad()
def accuracy(model: nn.Module, batches: Any, ranks: Ranks = ALONE) -> float:
    """Return the percentage of answers whose largest output is that of the target class.

    Args:
        model: a classifier; it runs in eval mode, and its modes are restored.
        batches: pairs of inputs and classes, as in `count_right`; they are moved to the model's
            device.
        ranks: the ranks that share the samples, each with batches of its own.

    Raises:
        ChitaError: The batches are empty, or outputs and targets are not those of a classifier.
    """
    device = device_of(model)
    right = total = 0
    with evaluating(model):
        for given in read_batches(model, batches):
            batch = given.to(device)
            if isinstance(batch.content, dict):
                raise ChitaError("accuracy needs batches of (inputs, classes), got dicts")
            outputs, targets = batch.outputs(model), batch.content[1]
            counted = count_right(outputs, targets)
            if counted is None:
                raise ChitaError(
                    "accuracy needs outputs (samples, classes) with at least two classes and "
                    f"integer targets (samples,), got {describe(logits_of(outputs))} "
                    f"and {describe(targets)}"
                )
            right, total = right + counted[0], total + counted[1]
    both = ranks.sum(torch.tensor([right, total], dtype=torch.float64))
    if both[1] == 0:
        raise ChitaError("batches are empty: accuracy needs at least one sample")
    return float(100 * both[0] / both[1])


def count_right(outputs: Any, targets: Any) -> tuple[int, int] | None:
    """Count the right answers and all answers; return None if these are not classes.

    Args:
        outputs: (B, classes, positions...) with at least two classes, or an object with such
            logits.
        targets: (B, positions...) or (B, 1, positions...) integers. Targets that the cross-entropy
            ignores do not count.
    """
    logits = logits_of(outputs)
    if not isinstance(logits, Tensor) or not isinstance(targets, Tensor) or logits.ndim < 2:
        return None
    targets = labels_for(logits, targets)
    answers = logits.shape[:1] + logits.shape[2:]
    if logits.shape[1] < 2 or targets.shape != answers or targets.is_floating_point():
        return None
    return int((logits.argmax(1) == targets).sum()), int((targets != IGNORED).sum())
