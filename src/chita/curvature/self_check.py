"""Check the rows of every batched chunk, so that A never contains a wrong row.

Three checks detect three kinds of error:

- `check_sum`: the rows of a chunk, with random signs, add up to its plain gradient. It detects a
  weight that is used outside its module, even for a few samples, and is left out for weights where
  autograd's graph shows that there is no such use. It cannot detect samples that interact, because
  the sum is correct for any division into rows.
- `check_outputs`: some samples of the chunk, run without the others, have the same outputs. It
  detects samples that interact. A mixture of experts with a capacity drops samples: in a chunk
  those that come last, and in a mini-batch alone others, since its capacity is smaller. The last
  rows are therefore always among those that are checked, and of each shape some mini-batches run
  alone.
- `check_row`: one row equals plain autograd on its mini-batch alone. It detects samples that are
  not in dimension 0. This depends on the shapes only, so that one check for each shape suffices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from chita.curvature.gradient_rows import Chunk, plain_row, seen_outputs
from chita.curvature.per_sample.linear import BLOCK, GPU_BLOCK
from chita.model.convolutions import rounds_factors
from chita.model.forward import run_model
from chita.model.hooks import NotSeparableError
from chita.model.losses import Loss
from chita.model.samples.batch import Batch, map_tensors
from chita.solver.matrix.in_memory import Place

FLOOR = 1e-3  # relative to the norm over all weights; smaller gradients are rounding errors
PART = 4  # check the outputs of one row in PART
ALONE = 32  # mini-batches that run alone for each new shape: enough to find one wrong row in ten
DIFFERENT = "the gradients of {} differ in a batch of many rows"


def self_check(
    model: nn.Module, batch: Batch, loss: Loss | None, chunk: Chunk, place: Place, *, new: bool
) -> None:
    """Check the rows with the largest losses and the last rows.

    Rows with large losses are included because gradients near zero agree even if they are wrong.

    Args:
        model: the model, in eval mode.
        batch: the R * m samples of the chunk.
        loss: the loss of one mini-batch.
        chunk: the result of `write_rows`.
        place: the place of the rows. Columns outside of it are not compared.
        new: whether this is the first chunk with tensors of these shapes.

    Raises:
        NotSeparableError: The rows are not the gradients of the mini-batches.
    """
    if chunk.total.weights:
        check_sum(chunk, place)
    rows = chunk.losses.argsort(descending=True)
    checked = check_outputs(model, batch, loss, chunk, _some(rows))
    if new or not checked:
        for row in rows[:2].tolist():
            check_row(model, batch, loss, chunk, place, row)
    if new and checked:
        for each in torch.split(_spread(len(rows)).to(rows.device), 1):
            check_outputs(model, batch, loss, chunk, each)


def _some(rows: Tensor) -> Tensor:
    """Return one row in PART, and before them half as many of the last rows, from the end.

    Args:
        rows: all rows, (R,), by falling loss.
    """
    count = max(1, len(rows) // PART)
    late = torch.arange(len(rows) - 1, len(rows) - 1 - count // 2, -1, device=rows.device)
    return torch.cat([late, rows[:count][~torch.isin(rows[:count], late)]])


def _spread(rows: int) -> Tensor:
    """Return at most ALONE different rows: half of them the last ones, and the others at random."""
    if rows <= ALONE:
        return torch.arange(rows)
    late = torch.arange(rows - ALONE // 2, rows)
    generator = torch.Generator().manual_seed(rows)
    early = torch.randperm(rows - len(late), generator=generator)[: ALONE - len(late)]
    return torch.cat([late, early])


@torch.no_grad()
def check_sum(chunk: Chunk, place: Place) -> None:
    """Compare the signed sum of the rows with the gradient of the signed sum of the losses.

    The terms of the sum may cancel; errors are therefore also relative to the norm of the rows.
    Both sides use the same output gradients and differ by the rounding errors of one product only,
    which permits a tight tolerance.
    """
    total = chunk.total
    compared = []
    for weight, gradient in zip(total.weights, total.gradients, strict=True):
        there, here = place.clip(weight.start, weight.stop)
        sums, norm = _sum_rows(place.columns[there], chunk.signs)
        expected = torch.zeros_like(sums)
        if gradient is not None:
            expected = gradient.reshape(-1)[here].to(sums.dtype)
        compared.append(torch.stack([(sums - expected).norm(), norm + expected.norm()]))
    errors, sizes = torch.stack(compared).double().unbind(1)
    parameter = total.weights[0].parameter
    eps, limits = _rounding(parameter), torch.finfo(parameter.dtype)
    relative = 2 * min(eps**0.5, eps + 1e-4)  # 2e-4 in float32, 2e-3 in TF32, 0.016 in bfloat16
    # Float16 underflows: each entry may be off by its smallest number.
    absolute = limits.smallest_normal * limits.eps * math.sqrt(len(place.columns))
    wrong = ~(errors <= relative * (sizes + FLOOR * sizes.norm()) + absolute)
    if wrong.any():
        name = total.weights[int(wrong.nonzero()[0])].name
        raise NotSeparableError(
            DIFFERENT.format(name) if name in chunk.called else f"{name} is used outside its module"
        )


def check_row(
    model: nn.Module, batch: Batch, loss: Loss | None, chunk: Chunk, place: Place, row: int
) -> None:
    """Compare one row with plain autograd on its mini-batch alone."""
    size = batch.size // len(chunk.losses)
    truth = plain_row(model, chunk.weights, batch[row * size : (row + 1) * size], loss)
    found = place.columns[:, row]
    tolerance = 3 * _rounding(truth.weights[0].parameter) ** 0.5  # 1e-3 in float32
    floor = FLOOR * found.norm()  # a weight whose gradient is only rounding errors passes
    for weight, gradient in zip(truth.weights, truth.gradients, strict=True):
        if gradient is None:
            continue
        there, here = place.clip(weight.start, weight.stop)
        expected = gradient.reshape(-1)[here].to(found.dtype)
        error = (found[there] - expected).norm()
        if not error <= tolerance * (expected.norm() + floor):
            raise NotSeparableError(DIFFERENT.format(weight.name))


def check_outputs(
    model: nn.Module, batch: Batch, loss: Loss | None, chunk: Chunk, rows: Tensor
) -> bool:
    """Run the mini-batches `rows` without the others and compare the outputs.

    Gradients stay enabled: without them a model may take another path, as attention does.

    Returns:
        Whether there were outputs to compare; only tensors are compared.
    """
    assert isinstance(batch.content, tuple)
    size = batch.size // len(chunk.losses)
    samples = (rows[:, None] * size + torch.arange(size, device=rows.device)).flatten()
    picked = map_tensors(lambda tensor: tensor[samples], batch.content[0])
    alone = seen_outputs(run_model(model, picked), loss)
    by_sample = [
        (one, other[samples])
        for one, other in zip(alone, chunk.outputs, strict=True)
        if one.shape[:1] == samples.shape and other.shape[:1] == (batch.size,)
    ]
    for one, other in by_sample:
        if one.shape != other.shape or not _alike(one, other):
            raise NotSeparableError("the outputs of a sample depend on the others in its batch")
    return bool(by_sample)


def _alike(one: Tensor, other: Tensor) -> bool:
    """Return whether two outputs (S, ...) differ by rounding errors only."""
    if not one.is_floating_point():
        return True  # such as classes, which rounding errors may change
    tolerance = 3 * _rounding(one) ** 0.5
    differences = (one - other).masked_fill(one == other, 0)  # equal infinities, as in a mask
    sizes = _norms(other.nan_to_num(0, 0, 0))
    return bool((_norms(differences) <= tolerance * (sizes + sizes.mean())).all())


def _norms(samples: Tensor) -> Tensor:
    """Return the norm of each sample, (S, ...) -> (S,)."""
    norms: Tensor = samples.reshape(len(samples), -1).float().norm(dim=1)
    return norms


def _sum_rows(columns: Tensor, signs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the signed sum of the rows, (c, R) and (R,) -> (c,), and the norm of all entries.

    One pass in blocks that fit the cache: the columns of a chunk are a strided part of A.
    """
    rows = columns.shape[1]
    block = BLOCK if columns.device.type == "cpu" else GPU_BLOCK
    signs, square = signs.to(columns), columns.new_zeros(())
    sums = []
    for part in torch.split(columns, max(1, block // (4 * rows))):
        part = part.contiguous()
        sums.append(part @ signs)
        square += part.flatten().dot(part.flatten())
    return torch.cat(sums), square.sqrt()


def _rounding(tensor: Tensor) -> float:
    """Return the relative error of one operation; GPUs may multiply float32 in 10 bits (TF32)."""
    if tensor.dtype == torch.float32 and tensor.device.type == "cuda" and rounds_factors():
        return 2.0**-10
    return torch.finfo(tensor.dtype).eps
