"""Find what breaks a training: a sample, the model, the teacher or the loss is not finite."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn

from chita.errors import ChitaError
from chita.model.forward import device_of, evaluating, features_of, logits_of
from chita.model.losses import Loss
from chita.model.part_losses import part_losses
from chita.model.samples.batch import Batch, tensors_of
from chita.model.samples.ignored_labels import ignored_hint
from chita.model.samples.stream import SampleStream

logger = logging.getLogger(__name__)

READ = 2  # times as many samples are read as were trained on: some of them are held out
REMEDY = "leave it out, or replace these values, as by torch.nan_to_num"


def check_samples(model: nn.Module, stream: SampleStream, loss: Loss | None, trained: int) -> None:
    """Raise an error if a sample has a loss that is not finite, after a training that failed.

    Args:
        model: the model as it was before the training.
        stream: the samples of the training, and those that guard it.
        loss: the loss of a mini-batch; None for the default.
        trained: the number of samples that were trained on.

    Raises:
        ChitaError: there is such a sample; the message has its place in the data, and what is not
            finite: the sample itself, or what the model, the teacher or the loss gives for it.
    """
    broken: list[Batch] = []

    def first_broken(piece: Batch) -> int | None:
        if bool(part_losses(model, [piece], loss, 1)[0].isfinite().all()):
            return None
        for place in range(piece.size):
            sample = piece[place : place + 1]
            if not bool(part_losses(model, [sample], loss, 1)[0].isfinite().all()):
                broken.append(sample)
                return place
        return None

    where = stream.find(first_broken, READ * trained)
    if where is not None:
        raise ChitaError(_cause(model, broken[0], where, labelled=stream.labelled))
    logger.info("all samples have a finite loss before the training")


def _cause(model: nn.Module, sample: Batch, where: str, *, labelled: bool) -> str:
    """Return an error message with the first thing that is not finite on the way to the loss.

    Args:
        model: the model before the training.
        sample: a sample whose loss is not finite.
        where: its place in the data.
        labelled: whether its targets are those of the data; otherwise, they are the answers of the
            teacher.
    """
    sample = sample.to(device_of(model))
    targets = () if isinstance(sample.content, dict) else sample.content[1]
    if not _finite(_outputs(model, sample)):
        if not _finite(sample.inputs):
            return f"{where} has inputs that are not finite: {REMEDY}"
        return (
            f"model gives outputs that are not finite for {where}, whose inputs are finite; give a "
            "trained model, and if its outputs overflow, model.float() or inputs of a smaller scale"
        )
    if not _finite(targets):
        if labelled:
            return f"{where} has targets that are not finite: {REMEDY}"
        return (
            f"teacher gives outputs that are not finite for {where}, and model finite ones; give "
            "the dense network with its trained weights"
        )
    return (
        f"loss is not finite for {where}, though its targets and the outputs of the model are; "
        "give targets in the range of the loss, or another loss, such as loss='cross_entropy'"
        f"{ignored_hint(sample)}"
    )


@torch.no_grad()
def _outputs(model: nn.Module, sample: Batch) -> Any:
    """Return the features or the logits of a sample; all outputs if they are not named."""
    with evaluating(model):
        outputs = sample.outputs(model)
    features = features_of(outputs)
    return logits_of(outputs) if features is None else features


def _finite(nest: Any) -> bool:
    """Return whether all tensors of a nest are finite."""
    return all(bool(tensor.isfinite().all()) for tensor in tensors_of(nest))
