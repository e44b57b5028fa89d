"""Choose where the samples and the outputs of blocks are stored, within the memory budget.

A run needs the moments of one group of layers, the vectors of one solve, the calibration samples,
and the outputs of one block for all of them. The last two are stored in memory or in files. If even
files have too little space, the outputs are computed again for each group of layers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

import torch

from chita.errors import ChitaError
from chita.model.forward import FORWARD_ONLY_FACTOR
from chita.model.layers import Axes
from chita.model.samples.batch import Batch, bytes_of
from chita.model.sections import Group, Sections
from chita.pruning.block_by_block.dense_run import DenseRun
from chita.pruning.block_by_block.stage_samples import StageSamples
from chita.pruning.block_by_block.stored_pieces import InMemory, OnDisk, StoredPieces
from chita.solver.matrix.memory import ENTRY, FACTOR_ENTRY, format_bytes, free_bytes, resident_bytes
from chita.solver.matrix.plan import LIBRARIES, probe_disk

logger = logging.getLogger(__name__)

Place = Callable[[], StoredPieces]

SQUARES = 4  # matrices of the size of a moment: the sum, a product, and two of a solve
VECTORS = 10  # float64 vectors over the weights of a layer in a solve
COPIES = 4  # of the columns of A of a layer in its solve
PASS_FACTOR = 64  # bytes of a forward pass of a block, relative to the block's output
PASS_SHARE = 0.1  # of the free memory of a GPU, for a forward pass of a block
FILLED = 0.6  # the largest fraction of the free memory for the samples, without a given budget


def group_bytes(
    group: Group, axes: Mapping[str, Axes], *, dense: bool = False, rows: int = 0
) -> int:
    """Return the bytes that the moments of a group and the solves of its layers need.

    Args:
        group: the layers.
        axes: the axes of each prunable weight, by name.
        dense: whether products with the inputs in the dense network are measured, too.
        rows: n, the rows of A; 0 without gradients.
    """
    sizes = [_moment_entries(axes[shared.weights[0].name]) for shared in group]
    layers = [weight.stop - weight.start for shared in group for weight in shared.weights]
    entries = (1 + dense) * sum(sizes) + (SQUARES - 1) * max(sizes) + VECTORS * max(layers)
    return FACTOR_ENTRY * entries + COPIES * ENTRY * rows * max(layers)


def _moment_entries(axes: Axes) -> int:
    inputs = axes.inputs_before * axes.inputs_after * axes.kernel
    return axes.groups * inputs**2


def store_samples(
    pieces: Iterable[Batch],
    sections: Sections,
    axes: Mapping[str, Axes],
    *,
    samples: int,
    sample: Batch,
    budget: int | None,
    device: torch.device,
    dense: bool,
    rows: int = 0,
) -> tuple[StageSamples, DenseRun | None]:
    """Read the samples of a stage, and store them where there is space.

    Args:
        pieces: the samples.
        sections: the sections of the network.
        axes: the axes of each prunable weight, by name.
        samples: the number of samples.
        sample: one of them.
        budget: the bytes that the process may use in total; None for most of the free memory.
        device: the device of the model.
        dense: whether the inputs of layers in the dense network are needed.
        rows: n, the rows of A; 0 without gradients.

    Returns:
        The samples, and the dense network beside them if `dense` is set.

    Raises:
        ChitaError: the budget is too small.
    """
    needed = (
        group_bytes(g, axes, dense=dense, rows=rows) for groups in sections.groups for g in groups
    )
    work = LIBRARIES + max(needed)
    each = bytes_of(sample.content) // sample.size
    data, states = samples * each, samples * sections.output_bytes
    if dense:
        states = 2 * states + samples * sections.input_bytes

    def stored(batches: Place, outputs: Place | None) -> tuple[StageSamples, DenseRun | None]:
        """Store the samples and the outputs of sections in these places; None to store nothing."""
        states, theirs, inputs = (None if outputs is None else outputs() for _ in range(3))
        run = DenseRun(sections, theirs, inputs) if dense else None
        return StageSamples(pieces, batches(), states), run

    free = _free(budget, device)
    if free is None or work + data + states <= free:
        return stored(InMemory, InMemory)
    if budget is not None and work > free:
        raise ChitaError(_too_little(budget, work, resident_bytes(device)))
    if data + states <= probe_disk().free:
        where, found = "written to files", stored(OnDisk, OnDisk)
    elif budget is None or work + data <= free:
        where, found = "computed again for each group", stored(InMemory, None)
    else:
        raise ChitaError(_too_little(budget, work + data, resident_bytes(device)))
    logger.info("the outputs of a block (%s) are %s", format_bytes(states), where)
    return found


def samples_at_once(given: int, sections: Sections, device: torch.device) -> int:
    """Return how many samples run through a section at once.

    A pass of one block stores little. On a GPU, few large passes take less time than many small
    ones, for which the model computes its masks and skips the other blocks each time.

    Args:
        given: the samples in the user's batches.
        sections: the sections of the network.
        device: the device of the model.
    """
    if device.type != "cuda" or not sections.output_bytes:
        return given
    fitting = int(PASS_SHARE * (free_bytes(device) or 0)) // (PASS_FACTOR * sections.output_bytes)
    return max(given, min(fitting, FORWARD_ONLY_FACTOR * given))


def _too_little(budget: int, needed: int, used: int) -> str:
    return (
        f"memory={format_bytes(budget)} is too little: at least {format_bytes(used + needed)} are "
        f"needed, of which the process already uses {format_bytes(used)}; give more memory or "
        "fewer samples, or exclude the largest layers"
    )


def _free(budget: int | None, device: torch.device) -> int | None:
    if budget is not None:
        return budget - resident_bytes(device)
    free = free_bytes(device)
    return None if free is None else int(FILLED * free)
