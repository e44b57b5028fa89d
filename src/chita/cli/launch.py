"""Start a command: its device, the ranks that torchrun started, and its network and data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import typer
from rich.console import Console

from chita.errors import ChitaError
from chita.files.resumable import ResumableRun
from chita.files.run_folder import prepare_folder
from chita.report.progress import step_bar
from chita.solver.ranks import ALONE, Made, Ranks, joined_ranks
from chita.zoo import Network
from chita.zoo.trained import Trained, open_trained


def pick_device(name: str | None) -> torch.device:
    """Return the device `name` after testing it; by default a GPU if available."""
    try:
        place = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=place).item()
    except (RuntimeError, AssertionError) as error:
        raise ChitaError(f"device {name!r} cannot be used: {error}") from error
    return place


@contextmanager
def launched(device: str | None) -> Iterator[tuple[Ranks, torch.device]]:
    """Join the ranks; yields them and the device of this rank.

    Each rank uses its own GPU and NCCL if there are enough GPUs; otherwise ranks use gloo.

    Args:
        device: such as "cpu" or "cuda"; by default a GPU if available.
    """
    place = pick_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE, place
        return
    backend = "gloo"
    if place.type == "cuda":
        gpus = torch.cuda.device_count()
        place = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % gpus)
        torch.cuda.set_device(place)
        backend = "nccl" if int(os.environ["LOCAL_WORLD_SIZE"]) <= gpus else "gloo"
    dist.init_process_group(backend)
    try:
        with joined_ranks() as ranks:
            yield ranks, place
    finally:
        dist.destroy_process_group()


def first_rank_first(ranks: Ranks, make: Callable[[], Made]) -> Made:
    """Call `make` on each rank, on rank 0 first, so that the others find the files it fetched."""
    made = make() if ranks.rank == 0 else None
    ranks.total(0)  # the others wait for rank 0, and raise its error
    return make() if made is None else made


def open_with_data(
    network: Network,
    checkpoint: Path | None,
    data_name: str | None,
    *,
    val_split: float | None,
    seed: int,
    place: torch.device,
    ranks: Ranks = ALONE,
    fresh: bool = False,
) -> Trained:
    """Open a network (see `chita.zoo.trained.open_trained`), and read its weights and data.

    Rank 0 fetches the data before the other ranks look for them.
    """
    trained = open_trained(
        network,
        checkpoint,
        data_name,
        val_split=val_split,
        seed=seed,
        place=place,
        fresh=fresh,
    )
    _ = trained.model  # wrong weights raise an error before data are fetched
    with step_bar(f"fetching {trained.data_name}") as progress:
        first_rank_first(ranks, lambda: trained.fetch(progress))
    return trained


@contextmanager
def resumable(
    kind: type[ResumableRun[Any]], out: Path | None, *, resume: bool, device: str | None
) -> Iterator[tuple[Ranks, torch.device]]:
    """Run `launched` for a command that stores its run in a folder.

    An interruption ends the command with a line about how to resume it.

    Args:
        kind: the type of the file that stores the run.
        out: the folder; None stores nothing.
        resume: whether to continue the run in the folder.
        device: see `launched`.
    """
    try:
        with launched(device) as (ranks, place):
            if ranks.rank == 0:  # the others might read a file while it is deleted
                _check_out(kind, out, resume=resume)
            yield ranks, place
    except KeyboardInterrupt:
        done = kind.done(out) if out is not None else None
        after = f" after {kind.part} {done[0]} of {done[1]}; continue with --resume" if done else ""
        Console(stderr=True).print(f"interrupted{after}", highlight=False)
        raise typer.Exit(130) from None


def _check_out(kind: type[ResumableRun[Any]], out: Path | None, *, resume: bool) -> None:
    """Raise an error, before any work, if the folder is not writable or its run would be lost."""
    if out is None and resume:
        raise ChitaError("--resume needs --out DIR, the folder of the run to continue")
    if out is not None:
        prepare_folder(out)
        if not resume:
            kind.forget_finished(out)
