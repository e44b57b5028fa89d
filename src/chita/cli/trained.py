"""The data set and the weights that go with a network, as the command line names them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import nn

from chita.cli.launch import first_rank_first
from chita.data import NAMES, Batches, Splits, image_folder, load
from chita.data.dataset import Images
from chita.errors import ChitaError
from chita.files.checkpoint import load_checkpoint
from chita.model.forward import device_of
from chita.report.progress import step_bar
from chita.solver.ranks import ALONE, Ranks
from chita.zoo import NETWORKS, Network

IMAGE_FOLDER = "imagefolder:"

# Options that several commands have.
NetworkName = Annotated[
    str, typer.Argument(metavar="MODEL", help=f"A network: {', '.join(NETWORKS)}.")
]
DataName = Annotated[
    str | None, typer.Option("--data", help=f"One of {', '.join(NAMES)}, or {IMAGE_FOLDER}DIR.")
]
Source = Annotated[str, typer.Argument(help="A checkpoint, the folder of a run or a network.")]
SourceNetwork = Annotated[
    str | None, typer.Option("--network", help="What the checkpoint is of, if no run says so.")
]
Include = Annotated[
    list[str] | None, typer.Option(help="Glob of parameter names to prune (repeatable).")
]
Exclude = Annotated[
    list[str] | None, typer.Option(help="Glob of parameter names to leave (repeatable).")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="End with one line of JSON on standard output.")
]
Device = Annotated[str | None, typer.Option(help="Such as cpu or cuda; a GPU if there is one.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all that is drawn at random.")]
ValSplit = Annotated[
    float | None, typer.Option(help="Share of an image folder without train/ and val/ to test on.")
]


@dataclass(frozen=True)
class Trained:
    """A network with its weights and its data.

    Attributes:
        network: of the zoo.
        model: on the device that batches are made for.
        data_name: of the data set.
        splits: its training and test images.
        seed: of the order in which calibration reads the training images.
    """

    network: Network
    model: nn.Module
    data_name: str
    splits: Splits
    seed: int

    @property
    def test(self) -> Batches:
        """The test images."""
        return self._batches(self.splits.test)

    @property
    def calibration(self) -> Batches:
        """The training images in their new order."""
        return self._batches(self.splits.train.shuffled(self.seed))

    def _batches(self, images: Images) -> Batches:
        return Batches(images, self.network.batch_size, device=device_of(self.model))


def open_trained(
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
    """The network that a command is about.

    Args:
        network: of the zoo.
        checkpoint: the weights; those that ship with chita by default.
        data_name: the data set; the one that goes with the weights by default.
        val_split: the share of an image folder to test on.
        seed: of that split, and of the order of calibration.
        place: where the model and its batches live.
        ranks: rank 0 fetches the data, the others find them.
        fresh: leave the weights as they are drawn, not trained.
    """
    name = pick_data(network, data_name, checkpoint)
    model = network.build().to(place)
    if not fresh:
        load_checkpoint(model, checkpoint or shipped_checkpoint(network))
    splits = first_rank_first(
        ranks, lambda: load_data(network, name, val_split=val_split, seed=seed)
    )
    return Trained(network, model, name, splits, seed)


def pick_data(network: Network, given: str | None, checkpoint: Path | None) -> str:
    """The data set asked for, or the one that goes with the weights."""
    if network.preprocessing is not None:
        if given is None or not given.startswith(IMAGE_FOLDER):
            raise ChitaError(
                f"{network.name} takes pictures of {network.data}, which chita cannot fetch: give "
                f"--data {IMAGE_FOLDER}DIR, got {given or 'none'}"
            )
        return given
    embedded = [] if network.embedded is None else [network.embedded.data]
    if given is None:
        return embedded[0] if checkpoint is None and embedded else network.data
    if given not in (network.data, *embedded):
        fitting = " or ".join([network.data, *embedded])
        raise ChitaError(f"{network.name} takes --data {fitting}, got {given!r}")
    return given


def load_data(network: Network, name: str, *, val_split: float | None, seed: int) -> Splits:
    """The training and test images of a data set that `pick_data` chose."""
    if network.preprocessing is not None:
        return image_folder(
            name.removeprefix(IMAGE_FOLDER),
            network.preprocessing,
            val_split=val_split,
            seed=seed,
            classes=network.classes,
        )
    if val_split is not None:
        raise ChitaError(f"--val-split is for --data {IMAGE_FOLDER}DIR, got {val_split} and {name}")
    with step_bar(f"fetching {name}") as progress:
        return load(name, progress=progress)


def shipped_checkpoint(network: Network) -> Path:
    """The trained weights inside the package."""
    if network.embedded is None:
        raise ChitaError(f"no trained {network.name} ships with chita: give --checkpoint FILE")
    return network.embedded.checkpoint
