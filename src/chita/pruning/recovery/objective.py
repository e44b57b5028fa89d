"""What recovery minimises: the divergence from the dense network, or the loss of the run.

Classes are compared by the divergence KL(p0 || p) of softened probabilities, features by squares
(`model/distill.py`). Neither needs labels, and with few samples both do better than labels.

Half of each batch are new inputs, which the dense network answers (`augmentation.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.distill import DenseNetwork
from chita.model.fast_arithmetic import fast_arithmetic, fast_format
from chita.model.forward import FORWARD_ONLY_FACTOR
from chita.model.losses import Loss, batch_loss
from chita.model.named_losses import compares_classes
from chita.model.samples.batch import Batch, join, tensors_of
from chita.pruning.recovery.augmentation import can_mix, new_inputs
from chita.pruning.recovery.pool import SamplePool, read_pool
from chita.pruning.recovery.step import Objective
from chita.solver.ranks import ALONE, Ranks

logger = logging.getLogger(__name__)

SPREAD = 256  # the samples whose answers determine the temperature
# Answers of the dense network are stored if they are at most this large for each sample. Those of a
# language model, a distribution over its vocabulary at each position, are computed at each step.
STORED_BYTES = 1 << 16
AHEAD = 16  # batches whose new inputs the dense network answers at once on a GPU

DISTILL, LOSS = "distill", "loss"  # the names of the tasks

View = Callable[[Batch], Batch]
Mix = Callable[[list[Batch], torch.Generator], list[Batch]]


def _unchanged(batch: Batch) -> Batch:
    return batch


@dataclass(frozen=True)
class RecoveryTask:
    """The samples to train on, and the loss of a batch of them.

    Attributes:
        name: DISTILL to train on the answers of the dense network, LOSS on the loss of the run.
        pool: the samples.
        objective: the loss of a batch.
        view: selects the targets of the objective from those that the pool stores.
        mix: replaces samples of each of some batches by new inputs; None to train on samples alone.
    """

    name: str
    pool: SamplePool
    objective: Objective
    view: View = _unchanged
    mix: Mix | None = None

    @property
    def example(self) -> Batch:
        """Some samples, with the targets of the objective."""
        return self.view(self.pool.example)

    def ahead(self, steps: int) -> int:
        """Return how many of the next batches are drawn at once.

        On a GPU, this saves launches of copies and of small forward passes.
        """
        return min(AHEAD, steps) if self.mix is not None and self.pool.place.type != "cpu" else 1

    def draw(self, generator: torch.Generator, ranks: Ranks, steps: int) -> Iterator[Batch]:
        """Yield this rank's part of the batches of some steps; see `SamplePool.draw`."""
        if self.mix is None:
            yield from map(self.view, islice(self.pool.draw(generator, ranks), steps))
            return
        for batches in self.pool.draw_groups(generator, ranks, steps, self.ahead(steps)):
            yield from self.mix(list(map(self.view, batches)), generator)


def distillation(
    dense: DenseNetwork,
    batches: Iterable[Batch],
    first: Batch,
    *,
    at_once: int,
    place: torch.device,
    ranks: Ranks = ALONE,
) -> RecoveryTask:
    """Return the samples with the answers of the dense network, and the divergence from them.

    The samples keep the targets of the run beside these answers.

    Args:
        dense: the dense network.
        batches: one pass over the samples.
        first: some samples.
        at_once: the largest number of samples in a forward pass.
        place: the device of the pruned network.
        ranks: the ranks that share each batch.
    """
    stored = dense.answer_bytes <= STORED_BYTES

    def both_targets(batch: Batch) -> Batch:
        batch = batch.map(fast_format)
        with fast_arithmetic(place, dense.parameters()):
            inputs, answers = _pair(dense.answers(batch))
        return Batch((inputs, {DISTILL: answers, LOSS: _own_targets(batch)}), batch.size)

    def divergence(model: nn.Module, batch: Batch) -> Tensor:
        batch = batch if stored else dense.answers(batch)
        return dense.divergence(batch.outputs(model), _pair(batch)[1], temperature)

    def mix(drawn: list[Batch], generator: torch.Generator) -> list[Batch]:
        """Replace the second half of each batch by new inputs."""
        size = drawn[0].size // 2
        mixed = new_inputs([batch[size:] for batch in drawn], generator)
        with fast_arithmetic(place, dense.parameters()):
            answered = join(
                [dense.answers(piece) for piece in mixed.split(FORWARD_ONLY_FACTOR * at_once)]
            )
        halves = answered.split(mixed.size // len(drawn))
        return [join([batch[:size], half]) for batch, half in zip(drawn, halves, strict=True)]

    convert = both_targets if stored else _unchanged
    pool = read_pool(batches, convert, at_once=at_once, place=place, ranks=ranks)
    mixes = stored and pool.uniform and pool.batch > 1 and can_mix(first)
    view = _targets_of(DISTILL) if stored else _unchanged
    example = pool.example[: min(SPREAD, at_once)]
    answered = view(example) if stored else dense.answers(example)
    temperature = dense.temperature(_pair(answered)[1])
    logger.info("temperature %.2g", temperature)
    return RecoveryTask(DISTILL, pool, divergence, view, mix if mixes else None)


def _pair(batch: Batch) -> tuple[tuple[Any, ...], Any]:
    """Return the inputs and targets of a batch that is not a dict of keywords."""
    assert isinstance(batch.content, tuple)
    return batch.content


def _own_targets(batch: Batch) -> Any:
    """Return the targets of the run; a dict of keywords contains them among its inputs."""
    return () if isinstance(batch.content, dict) else batch.content[1]


def _targets_of(name: str) -> View:
    """Return the view that selects the targets of a task; a dict of keywords is restored."""

    def view(batch: Batch) -> Batch:
        inputs, targets = _pair(batch)
        if name == LOSS and isinstance(inputs[0], Mapping):
            return Batch(dict(inputs[0]), batch.size)
        return Batch((inputs, targets[name]), batch.size)

    return view


def own_loss(
    batches: Iterable[Batch],
    loss: Loss | None,
    *,
    at_once: int,
    place: torch.device,
    ranks: Ranks = ALONE,
) -> RecoveryTask:
    """Return the samples as they are, and their loss; see `chita.prune` for the default loss."""
    pool = read_pool(batches, _unchanged, at_once=at_once, place=place, ranks=ranks)
    return RecoveryTask(LOSS, pool, _loss_of(loss))


def own_loss_of(task: RecoveryTask, loss: Loss | None) -> RecoveryTask:
    """Return the loss of the run on the samples of a distillation."""
    stored = task.view is not _unchanged
    return RecoveryTask(
        LOSS, task.pool, _loss_of(loss), _targets_of(LOSS) if stored else _unchanged
    )


def _loss_of(loss: Loss | None) -> Objective:
    def objective(model: nn.Module, batch: Batch) -> Tensor:
        return batch_loss(model, batch, loss)

    return objective


def treats_as_features(first: Batch, loss: Loss | str | None) -> bool:
    """Return whether outputs are features rather than classes, by the loss and the targets.

    The default loss and "distill" compare classes, and a loss of torch determines what it compares.
    The targets of a user's function, and the labels of a model that computes its own loss, are
    classes if they are integers.
    """
    if isinstance(first.content, dict):
        targets = first.content.get("labels")
    elif callable(loss):
        classes = compares_classes(loss)
        if classes is not None:
            return not classes
        targets = first.content[1]
    else:
        return False
    found = tensors_of(targets)
    return bool(found) and found[0].is_floating_point()


def tasks_for(
    model: nn.Module,
    batches: Callable[[], Iterable[Batch]],
    first: Batch,
    loss: Loss | None,
    *,
    squares: bool,
    labelled: bool,
    at_once: int,
    place: torch.device,
    ranks: Ranks = ALONE,
) -> list[RecoveryTask]:
    """Return the tasks that recovery may train on: distillation, and the loss of the run.

    Args:
        model: the model before pruning.
        batches: returns one pass over the samples.
        first: some samples.
        loss: the loss of the run; None for the default.
        squares: whether to treat all outputs as features.
        labelled: whether the samples have targets of their own.
        at_once: the largest number of samples in a forward pass.
        place: the device of the model.
        ranks: the ranks that share each batch.
    """
    try:
        dense = DenseNetwork(model, first, 0, squares=squares)
    except ChitaError as error:
        logger.warning("recovery trains on the loss, without the dense network: %s", error)
        return [own_loss(batches(), loss, at_once=at_once, place=place, ranks=ranks)]
    task = distillation(dense, batches(), first, at_once=at_once, place=place, ranks=ranks)
    return [task, own_loss_of(task, loss)] if labelled else [task]
