"""Gather a user's batches of samples and labels in memory, to train on them in any order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from chita.data.dataset import TensorData
from chita.errors import ChitaError
from chita.model.samples.batch import Batch, join, tensors_of
from chita.model.samples.given_data import read_batches


def gather_samples(name: str, model: nn.Module, given: Any) -> TensorData:
    """Return all samples of a user's data, each of one input tensor and a class.

    Args:
        name: the name of the data, for messages.
        model: the model that takes the inputs.
        given: pairs (inputs, classes), in any form that `chita.prune` accepts.

    Raises:
        ChitaError: there are no samples, they have several inputs, or no classes.
    """
    parts = [_checked(name, batch) for batch in read_batches(model, given)]
    if not parts:
        raise ChitaError(f"{name} contains no samples")
    content = join(parts).content
    assert isinstance(content, tuple)
    (inputs,), labels = content
    return TensorData(inputs, labels.long(), (), ())


def _checked(name: str, batch: Batch) -> Batch:
    match batch.content:
        case ((Tensor(),), Tensor() as labels) if labels.ndim == 1 and not _is_real(labels):
            return batch
    raise ChitaError(
        f"{name} must give batches (inputs, classes) with one tensor of inputs and one integer "
        f"for each sample, got {_described(batch)}; to train on other data, use "
        "chita.gradual.GradualPruner in your own loop"
    )


def _described(batch: Batch) -> str:
    tensors = (f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in tensors_of(batch.content))
    kind = "a dict" if isinstance(batch.content, dict) else "a pair"
    return f"{kind} of tensors {', '.join(tensors)}"


def _is_real(labels: Tensor) -> bool:
    return labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool
