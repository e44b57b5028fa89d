"""Labels that a loss ignores, such as -100: samples without any other label have no loss.

The mean over their labels is 0/0. Such samples do not count: a mean of losses is one over the
others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.model.samples.arrays import LABELS
from chita.model.samples.batch import Batch


def samples_with_labels(batch: Batch, ignored: int | None, *, predicts: bool) -> Tensor | None:
    """Return the indices of the samples with a label that counts; None if these are all.

    Args:
        batch: samples with targets, or a dict with labels.
        ignored: the label that the loss ignores; None if all labels count.
        predicts: whether the model predicts each label from those before it, so that the first one
            of a sequence does not count.
    """
    if ignored is None or not batch.size:
        return None
    counts = [
        (labels != ignored).reshape(batch.size, -1)[:, int(predicts and labels.ndim > 1) :].any(1)
        for labels in _labels(batch)
    ]
    if not counts:
        return None
    found = torch.stack([each.cpu() for each in counts]).any(0)
    return None if bool(found.all()) else found.nonzero()[:, 0]


def with_labels(batch: Batch, ignored: int | None, *, predicts: bool) -> Batch:
    """Return the samples with a label that counts; see `samples_with_labels`."""
    index = samples_with_labels(batch, ignored, predicts=predicts)
    return batch if index is None else batch.select(index)


def ignored_hint(batch: Batch) -> str:
    """Return a remedy if the labels of a sample, whose loss is not finite, are all the same."""
    for labels in _labels(batch):
        for sample in labels.reshape(batch.size, -1):
            first = int(sample[0]) if len(sample) else 0
            if bool((sample == first).all()) and (first < 0 or len(sample) > 1):
                return (
                    f"; the labels of a sample are all {first}: if the loss ignores this label, "
                    "give it as a module, such as torch.nn.CrossEntropyLoss(ignore_index="
                    f"{first}), so that such samples do not count, or leave them out"
                )
    return ""


def _labels(batch: Batch) -> list[Tensor]:
    """Return the integer labels of a batch, (size, ...)."""
    content = batch.content
    found = [content[1]] if isinstance(content, tuple) else [content.get(key) for key in LABELS]
    return [
        labels
        for labels in found
        if isinstance(labels, Tensor)
        and not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    ]
