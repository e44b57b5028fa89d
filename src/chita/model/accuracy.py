"""Top-1 accuracy: the one way in which right answers are counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.batch import describe, parse_batch
from chita.model.forward import device_of, evaluating, logits_of
from chita.model.losses import IGNORED
from chita.solver.ranks import ALONE, Ranks


@torch.no_grad()
def accuracy(model: nn.Module, batches: Iterable[Any], ranks: Ranks = ALONE) -> float:
    """The share of answers, in percent, whose largest output is at the target.

    Args:
        model: a classifier; evaluated in eval mode and left in its own modes.
        batches: of inputs and classes, as `count_right` takes them; they go where the model is.
        ranks: those who share the samples, each with batches of its own.

    Raises:
        ChitaError: there are no samples, or no answers that could be right.
    """
    device = device_of(model)
    right = total = 0
    with evaluating(model):
        for number, given in enumerate(batches):
            batch = parse_batch(number, given).to(device)
            if isinstance(batch.content, dict):
                raise ChitaError("an accuracy needs batches of (inputs, classes), got dicts")
            outputs, targets = batch.outputs(model), batch.content[1]
            counted = count_right(outputs, targets)
            if counted is None:
                raise ChitaError(
                    "an accuracy needs outputs (samples, classes), of two classes at least, and "
                    f"whole numbers (samples,) for targets, got {describe(logits_of(outputs))} "
                    f"and {describe(targets)}"
                )
            right, total = right + counted[0], total + counted[1]
    both = ranks.sum(torch.tensor([right, total], dtype=torch.float64))
    if both[1] == 0:
        raise ChitaError("batches are empty: accuracy needs at least one sample")
    return float(100 * both[0] / both[1])


def count_right(outputs: Any, targets: Any) -> tuple[int, int] | None:
    """How many answers are right, and of how many; None where there is no right or wrong.

    Args:
        outputs: (B, classes, places...) with two classes at least, or what has such logits.
        targets: (B, places...) whole numbers. Those that the cross-entropy leaves out do not count.
    """
    logits = logits_of(outputs)
    if not isinstance(logits, Tensor) or not isinstance(targets, Tensor) or logits.ndim < 2:
        return None
    answers = logits.shape[:1] + logits.shape[2:]
    if logits.shape[1] < 2 or targets.shape != answers or targets.is_floating_point():
        return None
    return int((logits.argmax(1) == targets).sum()), int((targets != IGNORED).sum())
