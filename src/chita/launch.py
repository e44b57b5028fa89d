"""A command on the ranks that torchrun has started; started without it, it is the only one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from chita.device import pick_device


@contextmanager
def launched(device: str | None) -> Iterator[tuple[int, torch.device]]:
    """The rank of this process, and the device it runs on.

    Ranks take a GPU each, and talk by NCCL, if there are enough; those that share a GPU or have
    none talk by gloo.

    Args:
        device: such as "cpu" or "cuda"; a GPU if there is one by default.
    """
    place = pick_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield 0, place
        return
    backend = "gloo"
    if place.type == "cuda":
        gpus = torch.cuda.device_count()
        place = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % gpus)
        torch.cuda.set_device(place)
        backend = "nccl" if int(os.environ["LOCAL_WORLD_SIZE"]) <= gpus else "gloo"
    dist.init_process_group(backend)
    try:
        yield dist.get_rank(), place
    finally:
        dist.destroy_process_group()


@contextmanager
def first_rank_first() -> Iterator[None]:
    """Rank 0 alone and then all others, who find what it has fetched."""
    waiting = dist.is_initialized() and dist.get_rank() > 0
    if waiting:
        dist.barrier()
    try:
        yield
    finally:
        if dist.is_initialized() and not waiting:
            dist.barrier()
