"""Start a command on its device, on the ranks that torchrun started, if any."""

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
    """The device called `name`, tried out; a GPU if there is one by default."""
    try:
        place = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=place).item()
    except (RuntimeError, AssertionError) as error:
        raise ChitaError(f"device {name!r} cannot be used: {error}") from error
    return place


@contextmanager
def launched(device: str | None) -> Iterator[tuple[Ranks, torch.device]]:
    """The ranks, and the device that this one runs on.

    Ranks take a GPU each, and talk by NCCL, if there are enough; those that share a GPU or have
    none talk by gloo.

    Args:
        device: such as "cpu" or "cuda"; a GPU if there is one by default.
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
    """What each rank makes, rank 0 before all others, who find what it has fetched."""
    made = make() if ranks.rank == 0 else None
    ranks.total(0)  # the others wait here, and hear if it failed
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
    """`launched`, for a command that keeps its run in a folder.

    An interruption ends it with a line that says how to go on.

    Args:
        kind: the file that the run is kept in.
        out: the folder; None keeps nothing.
        resume: whether to go on with the run found there.
        device: of `launched`.
    """
    try:
        with launched(device) as (ranks, place):
            if ranks.rank == 0:  # the others may find a file that goes away while they read it
                _check_out(kind, out, resume=resume)
            yield ranks, place
    except KeyboardInterrupt:
        done = kind.done(out) if out is not None else None
        after = f" after {kind.part} {done[0]} of {done[1]}; go on with --resume" if done else ""
        Console(stderr=True).print(f"interrupted{after}", highlight=False)
        raise typer.Exit(130) from None


def _check_out(kind: type[ResumableRun[Any]], out: Path | None, *, resume: bool) -> None:
    """The folder can be written to, and no work in it would be lost: told before any is done."""
    if out is None and resume:
        raise ChitaError("--resume needs --out DIR, the folder of the run to go on with")
    if out is not None:
        prepare_folder(out)
        if not resume:
            kind.forget_finished(out)
