"""Open a trained network: its model with weights, and its data with their preprocessing.

Every command and benchmark opens networks here. `find_trained.py` resolves what a user gives (the
name of a network, a reference, a checkpoint or a run folder), and `open_trained` adds the weights
and the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from chita.data import Batches, Splits
from chita.data.dataset import Images
from chita.data.download import Progress
from chita.data.gather import gather_samples
from chita.data.text import CONTEXT, DEFAULT_SIZE, TextSize, Tokens, choose_sequences
from chita.errors import ChitaError, describe_error
from chita.files.atomic import as_path
from chita.files.checkpoint import load_checkpoint
from chita.files.run_folder import model_file
from chita.model.language import Sequences, check_context, sequence_batches
from chita.zoo.find_trained import fitting_variant, shipped_checkpoint
from chita.zoo.given_network import find_network
from chita.zoo.network_data import IMAGE_FOLDER, load_data, pick_data
from chita.zoo.networks import Network


@dataclass(eq=False)  # compared and hashed by identity
class Trained:
    """A network with its weights and its data, both of which are read on first use.

    Attributes:
        network: the network.
        checkpoint: the file of the weights; None for those that the network is built with.
        data_name: the data set, "imagefolder:DIR" or a reference; None without data.
        val_split: the share of an image folder to test on.
        seed: the seed of that split, and of the order in which calibration reads the images.
        place: the device of the model and its batches.
        test_name: the test data, named as `data_name`; None for the test images of `data_name`.
        fresh: whether the weights are untrained.
        text: how texts are cut into sequences.
    """

    network: Network
    checkpoint: Path | None
    data_name: str | None
    val_split: float | None
    seed: int
    place: torch.device
    test_name: str | None = None
    fresh: bool = False
    text: TextSize = DEFAULT_SIZE
    _data: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def model(self) -> nn.Module:
        """The model with its weights, which pruning may change."""
        return self.build()

    def build(self) -> nn.Module:
        """Return a new model with the weights of the checkpoint."""
        trained = self.network.build_trained
        if trained is not None and self.checkpoint is None and not self.fresh:
            return self._placed(trained())
        model = self._placed(self.network.build())
        if self.checkpoint is not None:
            try:
                load_checkpoint(model, self.checkpoint)
            except ChitaError as error:
                raise ChitaError(f"{self.network.name}: {error}") from error
        return model

    def _placed(self, model: nn.Module) -> nn.Module:
        try:
            return model.to(self.place)
        except (NotImplementedError, ValueError) as error:  # without values, or quantized
            raise ChitaError(
                f"{self.network.name} cannot be moved to {self.place}: {describe_error(error)}"
            ) from error

    @property
    def splits(self) -> Splits:
        """The training and test images, or samples of a reference, which are read into memory.

        Raises:
            ChitaError: there are no test data, or the samples have no classes.
        """
        self.fetch()
        train, test = (self._data[name or ""] for name in (self.data_name, self._tested))
        if self.test_name is None and not isinstance(test, Splits):
            raise ChitaError(f"{self.data_name} has no test data: pass test_name= (--test)")
        return Splits(
            train.train if isinstance(train, Splits) else self._gather(self.data_name, train),
            test.test if isinstance(test, Splits) else self._gather(self.test_name, test),
        )

    def _gather(self, name: str | None, given: Any) -> Images:
        if isinstance(given, Tokens):
            raise ChitaError(
                f"{name} is a text, whose sequences have no classes to train on: use `chita prune` "
                "or `chita recover`, which train on the outputs of the dense model"
            )
        return gather_samples(str(name), self.model, given)

    @property
    def _tested(self) -> str | None:
        return self.test_name or self.data_name

    def fetch(self, progress: Progress | None = None) -> None:
        """Read the data once, and download them first if needed.

        Args:
            progress: called during a download (see `chita.data.load`).
        """
        if self.data_name is None:
            raise ChitaError(f"{self.network.name} was opened without its data")
        for name in filter(None, (self.data_name, self.test_name)):
            if name not in self._data:
                self._data[name] = load_data(
                    name, self.network, val_split=self.val_split, seed=self.seed, progress=progress
                )

    @cached_property
    def test(self) -> Any:
        """Batches of the test data; None if there are none."""
        self.fetch()
        found = self._data[self._tested or ""]
        if isinstance(found, Splits):
            return self._batches(found.test)
        if isinstance(found, Tokens):
            return (
                None if self.test_name is None else self._sequences(found.first(self.text.tokens))
            )
        return None if self.test_name is None else found

    @cached_property
    def calibration(self) -> Any:
        """The training images or sequences in an order drawn from the seed, or the user's data."""
        self.fetch()
        found = self._data[self.data_name or ""]
        if isinstance(found, Splits):
            return self._batches(found.train.shuffled(self.seed))
        return self._sequences(found, self.text.sequences) if isinstance(found, Tokens) else found

    def _sequences(self, tokens: Tokens, count: int | None = None) -> list[Sequences]:
        """Return the sequences of a text, or some of them in random order."""
        context = check_context(self.model, self.text.context, CONTEXT)
        found = tokens.sequences(context)
        if count is not None:
            found = choose_sequences(found, count, self.seed)
        return sequence_batches(self.model, found, tokens.name)

    def _batches(self, images: Images) -> Batches:
        return Batches(images, self.network.batch_size, device=self.place)


def open_trained(
    network: Network | str,
    checkpoint: str | Path | None = None,
    data_name: str | None = None,
    *,
    test_name: str | None = None,
    val_split: float | None = None,
    seed: int = 0,
    place: torch.device | str = "cpu",
    fresh: bool = False,
    text: TextSize = DEFAULT_SIZE,
    with_data: bool = True,
) -> Trained:
    """Open a network; nothing is read yet, but wrong arguments raise an error.

    Args:
        network: a network, its name in the zoo or a reference (see `find_network`).
        checkpoint: the weights, a file or a run folder; by default those that ship with chita, or
            those that the network of a reference is built with.
        data_name: the data set, "imagefolder:DIR" or a reference to the user's own data; by default
            the data set that belongs to the weights.
        test_name: the test data, named in the same way; by default the test images of `data_name`.
        val_split: the share of an image folder to test on.
        seed: the seed of that split, and of the order of calibration.
        place: the device of the model and its batches.
        fresh: keep the weights that `network.build` draws, without training.
        text: how texts are cut into sequences.
        with_data: False for a caller that needs the model alone.
    """
    network = network if isinstance(network, Network) else find_network(network)
    path = None if checkpoint is None else as_path(checkpoint, "checkpoint")
    name = pick_data(network, data_name, shipped=path is None) if with_data else None
    if val_split is not None and not any(
        given and given.startswith(IMAGE_FOLDER) for given in (name, test_name)
    ):
        raise ChitaError(
            f"val_split (--val-split) requires data_name (--data) {IMAGE_FOLDER}DIR, "
            f"got {val_split} and {name}"
        )
    if not fresh:
        path = shipped_checkpoint(network) if path is None else model_file(path)
    return Trained(
        network if fresh or path is None else fitting_variant(network, path),
        None if fresh else path,
        name,
        val_split,
        seed,
        torch.device(place),
        test_name=test_name,
        fresh=fresh,
        text=text,
    )
