"""Open a trained network: its model with weights, and its data with their preprocessing.

Every command and benchmark opens networks here. `find_trained` resolves what a user gives (the name
of a network, a checkpoint or a run folder), and `open_trained` adds the weights and the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from chita.data import Batches, Splits, image_folder, load
from chita.data.dataset import Images
from chita.data.fetch import Progress
from chita.errors import ChitaError
from chita.files.atomic import as_path
from chita.files.checkpoint import load_checkpoint
from chita.files.run_folder import CONFIG_FILE, config_beside, model_file
from chita.zoo.networks import NETWORKS, Network, get

IMAGE_FOLDER = "imagefolder:"


@dataclass(eq=False)  # compared and hashed by identity
class Trained:
    """A network with its weights and its data, both of which are read on first use.

    Attributes:
        network: the network of the zoo.
        checkpoint: the file of the weights; None for untrained ones.
        data_name: the data set, or "imagefolder:DIR"; None without data.
        val_split: the share of an image folder to test on.
        seed: the seed of that split, and of the order in which calibration reads the images.
        place: the device of the model and its batches.
    """

    network: Network
    checkpoint: Path | None
    data_name: str | None
    val_split: float | None
    seed: int
    place: torch.device
    _splits: Splits | None = field(default=None, init=False, repr=False)

    @cached_property
    def model(self) -> nn.Module:
        """The model with its weights, which pruning may change."""
        return self.build()

    def build(self) -> nn.Module:
        """Return a new model with the weights of the checkpoint."""
        model = self.network.build().to(self.place)
        if self.checkpoint is not None:
            load_checkpoint(model, self.checkpoint)
        return model

    @property
    def splits(self) -> Splits:
        """The training and test images."""
        return self.fetch()

    def fetch(self, progress: Progress | None = None) -> Splits:
        """Read the training and test images once, and download them first if needed.

        Args:
            progress: called during a download (see `chita.data.load`).
        """
        if self._splits is None:
            self._splits = self._load_splits(progress)
        return self._splits

    def _load_splits(self, progress: Progress | None) -> Splits:
        if self.data_name is None:
            raise ChitaError(f"{self.network.name} was opened without its data")
        if self.network.preprocessing is None:
            return load(self.data_name, progress=progress)
        return image_folder(
            self.data_name.removeprefix(IMAGE_FOLDER),
            self.network.preprocessing,
            val_split=self.val_split,
            seed=self.seed,
            classes=self.network.classes,
        )

    @cached_property
    def test(self) -> Batches:
        """The test images."""
        return self._batches(self.splits.test)

    @cached_property
    def calibration(self) -> Batches:
        """The training images in an order drawn from the seed."""
        return self._batches(self.splits.train.shuffled(self.seed))

    def _batches(self, images: Images) -> Batches:
        return Batches(images, self.network.batch_size, device=self.place)


def find_trained(source: str, network: str | None = None) -> tuple[Network, Path]:
    """Return the network and the checkpoint that `source` refers to.

    Args:
        source: a checkpoint, a run folder of `chita prune`, `chita gradual` or `chita recover`, or
            the name of a network whose weights ship with chita.
        network: the network of a checkpoint; by default the one in the config.yaml beside it.
    """
    path = model_file(Path(source))
    if path.is_file() and source in NETWORKS:
        raise ChitaError(
            f"{source!r} is both a network and a path ({path}): give ./{source} for the path, or "
            "rename it to use the network"
        )
    if path.is_file():
        return get(network or _network_of(path)), path
    if source in NETWORKS:
        return get(source), shipped_checkpoint(get(source))
    raise ChitaError(
        f"{source!r} is neither a checkpoint, a run folder nor a known network; the networks are "
        f"{', '.join(NETWORKS)}"
    )


def open_trained(
    network: Network | str,
    checkpoint: str | Path | None = None,
    data_name: str | None = None,
    *,
    val_split: float | None = None,
    seed: int = 0,
    place: torch.device | str = "cpu",
    fresh: bool = False,
    with_data: bool = True,
) -> Trained:
    """Open a network; nothing is read yet, but wrong arguments raise an error.

    Args:
        network: a network of the zoo, or its name.
        checkpoint: the weights, a file or a run folder; by default those that ship with chita.
        data_name: the data set; by default the one that belongs to the weights.
        val_split: the share of an image folder to test on.
        seed: the seed of that split, and of the order of calibration.
        place: the device of the model and its batches.
        fresh: keep the weights that `network.build` draws, without training.
        with_data: False for a caller that needs the model alone.
    """
    network = get(network) if isinstance(network, str) else network
    path = None if checkpoint is None else as_path(checkpoint, "checkpoint")
    name = _pick_data(network, data_name, path) if with_data else None
    if val_split is not None and network.preprocessing is None:
        raise ChitaError(
            f"val_split (--val-split) requires data_name (--data) {IMAGE_FOLDER}DIR, "
            f"got {val_split} and {name}"
        )
    if not fresh:
        path = shipped_checkpoint(network) if path is None else model_file(path)
    return Trained(network, None if fresh else path, name, val_split, seed, torch.device(place))


def shipped_checkpoint(network: Network) -> Path:
    """Return the trained weights inside the package."""
    if network.embedded is None:
        raise ChitaError(
            f"no trained {network.name} ships with chita: pass its weights as checkpoint= "
            "(--checkpoint)"
        )
    return network.embedded.checkpoint


def random_images(network: Network, batch: int) -> Tensor:
    """Draw images of the network's input size from a fixed seed, (batch, C, H, W)."""
    return torch.randn(batch, *network.input_shape, generator=torch.Generator().manual_seed(0))


def _pick_data(network: Network, given: str | None, checkpoint: Path | None) -> str:
    """Return the data set given, or by default the one that belongs to the weights."""
    if network.preprocessing is not None:
        if given is None or not given.startswith(IMAGE_FOLDER):
            raise ChitaError(
                f"{network.name} takes images of {network.data}, which chita cannot download: pass "
                f"data_name (--data) {IMAGE_FOLDER}DIR, got {given or 'none'}"
            )
        return given
    embedded = [] if network.embedded is None else [network.embedded.data]
    if given is None:
        return embedded[0] if checkpoint is None and embedded else network.data
    if given not in (network.data, *embedded):
        fitting = " or ".join([network.data, *embedded])
        raise ChitaError(f"{network.name} takes data_name (--data) {fitting}, got {given!r}")
    return given


def _network_of(checkpoint: Path) -> str:
    """Return the network that the configuration beside a checkpoint names."""
    name = config_beside(checkpoint).get("network")
    if name is None:
        raise ChitaError(
            f"the network of {checkpoint} is unknown, because no {CONFIG_FILE} beside it names "
            f"one: pass network= (--network), one of {', '.join(NETWORKS)}"
        )
    return str(name)
