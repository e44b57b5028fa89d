"""Start a command: its device, the ranks that torchrun started, and its network and data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import typer
from rich.console import Console

from chita.cli.set_option import read_arguments
from chita.data.text import DEFAULT_SIZE, TextSize
from chita.errors import ChitaError
from chita.files.resumable import ResumableRun
from chita.files.run_folder import (
    MODEL_FILE,
    check_other_parts,
    check_replaceable,
    config_beside,
    discard_parts,
    writing_to,
)
from chita.report.console import show
from chita.report.progress import step_bar
from chita.solver.ranks import ALONE, Made, Ranks, joined_ranks
from chita.zoo import Network
from chita.zoo.find_trained import find_source, find_trained
from chita.zoo.network_data import IMAGE_FOLDER
from chita.zoo.trained import Trained, open_trained

BY_TORCHRUN = "start several ranks by torchrun, or unset WORLD_SIZE to run one process"


def pick_device(name: str | None) -> torch.device:
    """Return the device `name` after testing it; by default a GPU if available.

    A GPU with a number, such as cuda:1, becomes the current one, so that nothing is allocated on
    another GPU.
    """
    try:
        place = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        if place.type == "cuda" and place.index is not None and torch.cuda.is_available():
            torch.cuda.set_device(place)
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
    size = _rank_variable("WORLD_SIZE", least=1, default="1")
    if size == 1:
        yield ALONE, pick_device(device)
        return
    _rank_variable("RANK", most=size - 1)  # torch would wait for another half an hour
    place = pick_device(_device_of_rank(device))
    backend = "gloo"
    if place.type == "cuda":
        enough = _rank_variable("LOCAL_WORLD_SIZE", least=1) <= torch.cuda.device_count()
        backend = "nccl" if enough else "gloo"
    try:
        dist.init_process_group(backend)
    except (ValueError, RuntimeError) as error:  # a variable is missing, or no connection
        raise ChitaError(f"the ranks cannot be joined: {error}; {BY_TORCHRUN}") from error
    try:
        with joined_ranks() as ranks:
            yield ranks, place
    finally:
        dist.destroy_process_group()


def _device_of_rank(device: str | None) -> str | None:
    """Return the GPU of this rank instead of "cuda" or None; the ranks of a node share its GPUs."""
    if not (device or "cuda").startswith("cuda") or not torch.cuda.is_available():
        return device
    return f"cuda:{_rank_variable('LOCAL_RANK') % torch.cuda.device_count()}"


def _rank_variable(name: str, *, least: int = 0, most: int | None = None, default: str = "") -> int:
    """Return a number that torchrun sets in the environment."""
    given = os.environ.get(name, default)
    if not given.isdecimal() or int(given) < least or (most is not None and int(given) > most):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ChitaError(
            f"the environment variable {name} must be an integer {span}, got {given!r}; "
            f"{BY_TORCHRUN}"
        )
    return int(given)


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
    test_name: str | None = None,
    val_split: float | None,
    seed: int,
    place: torch.device,
    ranks: Ranks = ALONE,
    fresh: bool = False,
    text: TextSize = DEFAULT_SIZE,
) -> Trained:
    """Open a network (see `chita.zoo.trained.open_trained`), and read its weights and data.

    Rank 0 fetches the data before the other ranks look for them.
    """
    trained = open_trained(
        network,
        checkpoint,
        data_name,
        test_name=test_name,
        val_split=val_split,
        seed=seed,
        place=place,
        fresh=fresh,
        text=text,
    )
    _ = trained.model  # wrong weights raise an error before data are fetched
    with step_bar(f"fetching {trained.data_name}") as progress:
        first_rank_first(ranks, lambda: trained.fetch(progress))
    return trained


def open_source(
    source: str,
    network: str | None,
    arguments: Sequence[str] | None,
    data_name: str | None,
    *,
    fresh: bool = False,
) -> Trained:
    """Open a network, a checkpoint or a run folder, to run it on example inputs.

    Args:
        source: see `chita.zoo.trained.find_trained`.
        network: the network of a checkpoint outside a run folder.
        arguments: the texts of --set.
        data_name: the data of the example inputs; by default those of the run of a user's network.
        fresh: whether to keep the weights that the network is built with, without training.
    """
    find = find_source if fresh else find_trained
    known, checkpoint = find(source, network, read_arguments(arguments))
    weights = "untrained weights" if fresh else checkpoint or "its own weights"
    show(f"{known.name} from {weights}")
    if data_name is None and known.data is None and checkpoint is not None:
        used = config_beside(checkpoint).get("data")
        # Images of a folder have the size of the random images that replace them.
        data_name = used if isinstance(used, str) and not used.startswith(IMAGE_FOLDER) else None
    return open_trained(known, checkpoint, data_name, with_data=data_name is not None, fresh=fresh)


@dataclass(frozen=True)
class Output:
    """The output folder of a command, from its options.

    Attributes:
        folder: --out; None writes nothing.
        names: the files that the command writes there.
        inputs: the files and folders that it reads.
        overwrite: --overwrite.
    """

    folder: Path | None
    names: Sequence[str]
    inputs: Sequence[Path | str | None]
    overwrite: bool

    @contextmanager
    def opened(self, ranks: Ranks, *, part_file: str | None = None) -> Iterator[None]:
        """Lock the folder, and check before any work that nothing is lost in it.

        Args:
            ranks: rank 0 writes.
            part_file: the file with the finished parts of such a run, if it can be resumed.
        """
        folder = self.folder if ranks.rank == 0 else None
        with writing_to(folder):
            if folder is not None:
                check_replaceable(folder, self.names, inputs=self.inputs, overwrite=self.overwrite)
                if MODEL_FILE in self.names:  # a run, which replaces the one before
                    self.discarding(lambda: check_other_parts(folder, part_file), part_file)
            yield

    def discarding(self, check: Callable[[], None], kept: str | None = None) -> None:
        """Run a check for unfinished runs; with --overwrite, give up the run that it finds."""
        try:
            check()
        except ChitaError:
            if not self.overwrite or self.folder is None:
                raise
            discard_parts(self.folder, kept)


@contextmanager
def resumable(
    kind: type[ResumableRun[Any]], output: Output, *, resume: bool, device: str | None
) -> Iterator[tuple[Ranks, torch.device]]:
    """Run `launched` for a command that stores its run in a folder.

    An interruption ends the command with a line about how to resume it.

    Args:
        kind: the type of the file that stores the run.
        output: the output folder.
        resume: whether to continue the run in the folder.
        device: see `launched`.
    """
    out = output.folder
    if out is None and resume:
        raise ChitaError("--resume needs --out DIR, the folder of the run to continue")
    try:
        with launched(device) as (ranks, place), output.opened(ranks, part_file=kind.file):
            if ranks.rank == 0 and out is not None and not resume:
                output.discarding(lambda: kind.check_none_unfinished(out))
            yield ranks, place
    except KeyboardInterrupt:
        done = kind.done(out) if out is not None else None
        after = f" after {kind.part} {done[0]} of {done[1]}; continue with --resume" if done else ""
        Console(stderr=True).print(f"interrupted{after}", highlight=False)
        raise typer.Exit(130) from None
