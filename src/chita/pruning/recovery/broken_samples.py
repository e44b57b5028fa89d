"""Find the sample that breaks a training: its loss, or that of its batch, is not finite."""

from __future__ import annotations

import logging

from torch import nn

from chita.errors import ChitaError
from chita.model.losses import Loss, part_losses
from chita.model.samples.batch import Batch
from chita.model.samples.ignored_labels import ignored_hint
from chita.model.samples.stream import SampleStream

logger = logging.getLogger(__name__)

READ = 2  # times as many samples are read as were trained on: some of them are held out


def check_samples(model: nn.Module, stream: SampleStream, loss: Loss | None, trained: int) -> None:
    """Raise an error if a sample has a loss that is not finite, after a training that failed.

    Args:
        model: the model as it was before the training.
        stream: the samples of the training, and those that guard it.
        loss: the loss of a mini-batch; None for the default.
        trained: the number of samples that were trained on.

    Raises:
        ChitaError: there is such a sample; the message has its place in the data.
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
        raise ChitaError(
            f"the loss of {where} is not finite: the model and the data must give finite losses"
            f"{ignored_hint(broken[0])}"
        )
    logger.info("all samples have a finite loss before the training")
