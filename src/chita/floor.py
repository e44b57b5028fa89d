"""The floor under a pruned network: how much worse than the dense one it may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chita.batch import Batch
from chita.errors import ChitaError
from chita.modes import device_of, evaluating
from chita.outputs import logits_of

CEILING = 0.99  # the sparsity to search up to, unless one is given


@dataclass(frozen=True)
class Floor:
    """What a stage must keep to be accepted, on held-out samples.

    Attributes:
        max_loss_increase: by how much the loss may exceed that of the dense network.
        min_accuracy: the least accuracy, in percent.
    """

    max_loss_increase: float | None = None
    min_accuracy: float | None = None

    def holds(self, loss: float, dense_loss: float, accuracy: float | None) -> bool:
        if self.max_loss_increase is not None and not loss - dense_loss <= self.max_loss_increase:
            return False
        return self.min_accuracy is None or (accuracy is not None and accuracy >= self.min_accuracy)


def sparsity_to_reach(given: float | str | None, floor: Floor) -> float | str:
    """The sparsity that was given; without one, where the search for the floor ends.

    Raises:
        ChitaError: there is neither.
    """
    if given is not None:
        return given
    if floor == Floor():
        raise ChitaError(
            "sparsity must be a number in [0, 1), got None; it may be left out where "
            "max_loss_increase or min_accuracy says how far to go"
        )
    return CEILING


@torch.no_grad()
def held_out_accuracy(model: nn.Module, held_out: Sequence[Batch]) -> float:
    """The accuracy on held-out samples, in percent.

    Raises:
        ChitaError: the batches are not of inputs and classes.
    """
    right = total = 0
    with evaluating(model):
        for batch in held_out:
            moved = batch.to(device_of(model))
            if isinstance(moved.content, dict):
                raise ChitaError("min_accuracy needs batches of (inputs, classes), got dicts")
            classes = moved.content[1]
            if not isinstance(classes, Tensor):
                raise ChitaError("min_accuracy needs targets that are classes; distill has none")
            found = logits_of(moved.outputs(model)).argmax(1)
            if found.shape != classes.shape:
                raise ChitaError(
                    "min_accuracy needs a classifier and its classes: the outputs give some of "
                    f"shape {tuple(found.shape)}, and the targets are {tuple(classes.shape)}"
                )
            right += int((found == classes).sum())
            total += classes.numel()
    return 100 * right / total
