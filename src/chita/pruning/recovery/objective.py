"""What recovery minimises: the divergence from the dense network, or the loss of the run.

Classes are compared by the divergence KL(p0 || p) of softened probabilities, features by squares
(`model/distill.py`). Neither needs labels, and with few samples both do better than labels.

The dense network answers any input. Half of each batch are therefore means of two samples (mixup;
Zhang et al. 2018, Beyer et al. 2022), so that training does not fit the answers of few samples.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.batch import Batch, join, tensors_of
from chita.model.distill import Dense
from chita.model.losses import Loss, batch_loss
from chita.pruning.recovery.pool import SamplePool, read_pool
from chita.pruning.recovery.step import Objective
from chita.solver.ranks import Ranks

logger = logging.getLogger(__name__)

TEMPERATURE = 2.0
# Answers of the dense network are stored if they are at most this large for each sample. Those of a
# language model, a distribution over its vocabulary at each position, are computed at each step.
STORED_BYTES = 1 << 16
AHEAD = 16  # batches whose mixed samples the dense network answers at once

Prepare = Callable[[list[Batch], torch.Generator], list[Batch]]


@dataclass(frozen=True)
class Lesson:
    """The samples to train on, and the loss of a batch of them.

    Attributes:
        pool: the samples.
        objective: the loss of a batch.
        prepare: changes some batches before they are used; None to use them as they are.
    """

    pool: SamplePool
    objective: Objective
    prepare: Prepare | None = None

    def draw(self, generator: torch.Generator, ranks: Ranks) -> Iterator[Batch]:
        """Yield this rank's part of each batch, without end; see `SamplePool.draw`."""
        batches = self.pool.draw(generator, ranks)
        if self.prepare is None:
            yield from batches
            return
        while True:
            yield from self.prepare(list(islice(batches, AHEAD)), generator)


def distillation(
    dense: Dense, batches: Iterable[Batch], first: Batch, *, at_once: int, place: torch.device
) -> Lesson:
    """Return the samples with the answers of the dense network, and the divergence from them.

    Args:
        dense: the dense network.
        batches: one pass over the samples.
        first: some samples.
        at_once: the largest number of samples in a forward pass.
        place: the device of the pruned network.
    """
    answer = dense.answers(first[:1].to(place)).content[1]  # type: ignore[index]
    stored = sum(tensor.nbytes for tensor in tensors_of(answer)) <= STORED_BYTES
    pool = read_pool(batches, dense.answers if stored else _unchanged, at_once=at_once, place=place)

    def divergence(model: nn.Module, batch: Batch) -> Tensor:
        batch = batch if stored else dense.answers(batch)
        assert isinstance(batch.content, tuple)
        return dense.divergence(batch.outputs(model), batch.content[1], TEMPERATURE)

    def mix(drawn: list[Batch], generator: torch.Generator) -> list[Batch]:
        """Replace the second half of each batch by means of its samples."""
        halves = [_mixed(batch[batch.size // 2 :], generator) for batch in drawn]
        answered = [dense.answers(piece) for piece in join(halves).split(at_once)]
        mixed = join(answered).split(halves[0].size)
        return [
            join([batch[: batch.size // 2], half]) for batch, half in zip(drawn, mixed, strict=True)
        ]

    mixes = stored and pool.uniform and pool.batch > 1 and _can_mix(first)
    return Lesson(pool, divergence, mix if mixes else None)


def _can_mix(batch: Batch) -> bool:
    """Return whether a mean of two inputs is an input: not for tokens, nor for dicts of them."""
    inputs = batch.content[0] if isinstance(batch.content, tuple) else ()
    return bool(inputs) and all(isinstance(x, Tensor) and x.is_floating_point() for x in inputs)


def _mixed(batch: Batch, generator: torch.Generator) -> Batch:
    """Return means of the inputs of each sample and the next one, with random weights."""
    assert isinstance(batch.content, tuple)
    inputs = batch.content[0]
    share = torch.rand(batch.size, generator=generator).to(inputs[0].device)

    def mean(x: Tensor) -> Tensor:
        weight = share.to(x.dtype).view(-1, *[1] * (x.ndim - 1))
        return torch.lerp(x.roll(1, 0), x, weight)

    return Batch((tuple(mean(x) for x in inputs), ()), batch.size)


def own_loss(
    batches: Iterable[Batch], loss: Loss | None, *, at_once: int, place: torch.device
) -> Lesson:
    """Return the samples as they are, and their loss; see `chita.prune` for the default loss."""

    def objective(model: nn.Module, batch: Batch) -> Tensor:
        return batch_loss(model, batch, loss)

    return Lesson(read_pool(batches, _unchanged, at_once=at_once, place=place), objective)


def treats_as_features(first: Batch, loss: Loss | str | None) -> bool:
    """Return whether outputs are features rather than classes, by the loss and the targets.

    The default loss and "distill" compare classes. The targets of a user's function, and the labels
    of a model that computes its own loss, are classes if they are integers.
    """
    if isinstance(first.content, dict):
        targets = first.content.get("labels")
    elif callable(loss):
        targets = first.content[1]
    else:
        return False
    found = tensors_of(targets)
    return bool(found) and found[0].is_floating_point()


def _unchanged(batch: Batch) -> Batch:
    return batch


def lesson_for(
    model: nn.Module,
    batches: Callable[[], Iterable[Batch]],
    first: Batch,
    loss: Loss | None,
    *,
    squares: bool,
    at_once: int,
    place: torch.device,
) -> Lesson:
    """Return the distillation from a model, or its own loss if its outputs cannot be compared.

    Args:
        model: the model before pruning.
        batches: returns one pass over the samples.
        first: some samples.
        loss: the loss of the run; None for the default.
        squares: whether to treat all outputs as features.
        at_once: the largest number of samples in a forward pass.
        place: the device of the model.
    """
    try:
        dense = Dense(model, first, 0, squares=squares)
    except ChitaError as error:
        logger.warning("recovery trains on the loss, without the dense network: %s", error)
        return own_loss(batches(), loss, at_once=at_once, place=place)
    return distillation(dense, batches(), first, at_once=at_once, place=place)
