"""How many rows of A to take at once: as many as a fixed amount of memory has room for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn

from chita.curvature.per_sample.registry import rule_for
from chita.model.hooks import Owner

# Room for what autograd keeps of one chunk; the gradients and windows come to some times as much.
CHUNK_BYTES = 128 << 20
GPU_SHARE = 1 / 8  # of what is free on a GPU, which a fixed small amount would not keep busy


@contextmanager
def saved_tensors(model: nn.Module) -> Iterator[dict[int, int]]:
    """Notes the bytes of each tensor that autograd keeps, other than the model's own."""
    saved: dict[int, int] = {}
    own = {t.untyped_storage().data_ptr() for t in chain(model.parameters(), model.buffers())}

    def note(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield saved


def row_bytes(found: list[Owner], saved: dict[int, int]) -> int:
    """What one more row in a chunk takes.

    Args:
        found: the owners of prunable weights. Gradients of those without a rule of their own
            are made for all rows of the chunk at once.
        saved: what autograd kept of one row.
    """
    whole = [
        weight.parameter.numel() * weight.parameter.element_size()
        for owner in found
        if rule_for(owner.module) is None
        for weight in owner.owned.values()
    ]
    return sum(saved.values()) + max(whole, default=0)


def rows_at_once(row_bytes: int, device: torch.device) -> int:
    """The number of rows in a chunk on `device`, at least 1."""
    room = CHUNK_BYTES
    if device.type == "cuda":
        room = int(torch.cuda.mem_get_info(device)[0] * GPU_SHARE)
    return max(1, room // max(1, row_bytes))
