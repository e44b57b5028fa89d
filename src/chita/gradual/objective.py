"""What a training step minimises: the cross-entropy with labels, or the divergence from a teacher.

Distillation is that of recovery (`pruning/recovery/objective.py`), so that methods that train can
be compared with pruning and recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from chita.model.distill import DenseNetwork
from chita.model.samples.batch import Batch

Objective = Callable[[Tensor, Tensor, Tensor], Tensor]  # (outputs, inputs, labels) -> a scalar


def cross_entropy(label_smoothing: float) -> Objective:
    """Return the mean cross-entropy with the labels.

    Args:
        label_smoothing: the share of each target that is spread over all classes.
    """

    def loss(outputs: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(outputs, labels, label_smoothing=label_smoothing)

    return loss


def distillation(teacher: nn.Module, example: Tensor) -> Objective:
    """Return the mean divergence from the answers of a teacher to the same inputs, without labels.

    The answers are computed at each step, since augmentation changes the inputs.

    Args:
        teacher: the dense network; it is copied, and may change afterwards.
        example: some inputs on the device of the teacher, (B, C, H, W).
    """
    dense = DenseNetwork(teacher, _batch(example), 0, squares=False)
    temperature = dense.temperature(_targets(dense, example))

    def loss(outputs: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        return dense.divergence(outputs, _targets(dense, inputs), temperature)

    return loss


def _targets(dense: DenseNetwork, inputs: Tensor) -> Mapping[str, Tensor]:
    """Return the answers of the dense network."""
    answered = dense.answers(_batch(inputs))
    assert isinstance(answered.content, tuple)
    targets: Mapping[str, Tensor] = answered.content[1]
    return targets


def _batch(inputs: Tensor) -> Batch:
    return Batch(((inputs,), ()), len(inputs))
