"""The losses of small parts of some samples, in as few forward passes as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.forward import device_of, evaluating, logits_of
from chita.model.losses import Loss, batch_loss, row_losses, scalar
from chita.model.samples.batch import Batch, differ_in_shape, join, tensors_of

FEW_PARTS = 8  # parts of a batch if each needs its own forward pass


@torch.no_grad()
def part_losses(
    model: nn.Module, batches: Sequence[Batch], loss: Loss | None, part: int, *, at_once: int = 0
) -> tuple[Tensor, Tensor]:
    """Compute the loss of small parts of the samples, in eval mode.

    One forward pass gives the losses of all parts of a batch, or of several batches. If the outputs
    cannot be divided by samples, or the model computes its own loss, the batch is divided into a
    few parts with a forward pass each.

    Args:
        model: any module.
        batches: samples.
        loss: as for `gradient_matrix`.
        part: m, the samples in a part; a batch that m does not divide is divided into a few parts.
        at_once: the most samples of a joined forward pass; 0 joins no batches.

    Returns:
        The losses and the sizes of the parts, two float64 vectors (parts,) on the CPU.
    """
    device = device_of(model)
    losses, sizes = [torch.empty(0)], list[int]()
    with evaluating(model):
        for group in _groups(batches, part, at_once):
            for found, size in _losses_of([batch.to(device) for batch in group], model, loss, part):
                losses.append(found)
                sizes += [size] * len(found)
    each = torch.cat([found.detach().double().cpu() for found in losses])
    return each, torch.tensor(sizes, dtype=torch.float64)


def _groups(batches: Sequence[Batch], part: int, at_once: int) -> Iterator[list[Batch]]:
    """Yield the batches in groups for one forward pass, of the same shapes and whole parts."""
    group: list[Batch] = []
    samples = 0
    for batch in batches:
        fits = samples + batch.size <= at_once and samples % part == batch.size % part == 0
        if group and not (fits and not differ_in_shape(group[0], batch)):
            yield group
            group, samples = [], 0
        group.append(batch)
        samples += batch.size
    if group:
        yield group


def _losses_of(
    group: list[Batch], model: nn.Module, loss: Loss | None, part: int
) -> Iterator[tuple[Tensor, int]]:
    """Yield losses of parts, and the number of samples in each of these parts."""
    joined = join(group)
    try:
        found = _row_losses(model, joined, loss, part)
    except torch.cuda.OutOfMemoryError:
        if len(group) == 1:
            raise
        found = None
    if found is not None:
        yield found, joined.size // len(found)
    elif len(group) > 1:
        for batch in group:
            yield from _losses_of([batch], model, loss, part)
    else:
        for piece in joined.split(max(part, -(-joined.size // FEW_PARTS))):
            yield batch_loss(model, piece, loss).reshape(1), piece.size


def _row_losses(model: nn.Module, batch: Batch, loss: Loss | None, part: int) -> Tensor | None:
    """Compute the loss of each part in one forward pass; return None if that is impossible."""
    rows, rest = divmod(batch.size, part)
    if rest or rows < 2 or isinstance(batch.content, dict):
        return None
    outputs = batch.outputs(model)
    seen = tensors_of(logits_of(outputs) if loss is None else outputs)
    if not seen or any(tensor.shape[:1] != (batch.size,) for tensor in seen):
        return None
    try:
        found = row_losses(loss, outputs, batch.content[1], rows)
    except ChitaError:  # a loss may need outputs of the original type; others fail again later
        return None
    scalar(found[0])
    return found
