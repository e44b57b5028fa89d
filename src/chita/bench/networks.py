"""What is pruned in the benchmarks: trained networks with their data, for each seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from chita import data, zoo
from chita.batch_norm import reestimate_batch_norm
from chita.checkpoint import load_checkpoint, save_checkpoint
from chita.errors import ChitaError

CHECKPOINTS = {"mlpnet": "mlpnet_mnist.safetensors", "resnet20": "resnet20_cifar10.safetensors"}
EMBEDDED = "mlpnet-embedded"  # not the paper's network: its cells must not be taken for those


@dataclass(frozen=True)
class Subject:
    """A trained network and its data.

    Attributes:
        name: in keys and tables.
        network: of the zoo.
        checkpoint: its trained weights.
        data_name: its data set.
        device: where it runs.
        cache: a folder for what takes long to make.
    """

    name: str
    network: zoo.Network
    checkpoint: Path
    data_name: str
    device: torch.device
    cache: Path

    @cached_property
    def splits(self) -> data.Splits:
        return data.load(self.data_name)

    @cached_property
    def test(self) -> data.Batches:
        """The test set."""
        return data.Batches(self.splits.test, 2000, device=self.device)

    def calibration(self, seed: int) -> data.Batches:
        """The training set in an order drawn from the seed."""
        return data.Batches(self.splits.train.shuffled(seed), 1024, device=self.device)

    def model(self, seed: int) -> nn.Module:
        """The trained network; batch norm is re-estimated over augmented data, as in the paper."""
        model = self.network.build().to(self.device)
        augment = self.network.recipe.augment
        if augment is None:
            load_checkpoint(model, self.checkpoint)
            return model
        ready = self.cache / f"{self.name}-{seed}.safetensors"
        if ready.exists():
            load_checkpoint(model, ready)
            return model
        load_checkpoint(model, self.checkpoint)
        augmented = data.Batches(
            self.splits.train, 128, shuffle=True, augment=augment, seed=seed, device=self.device
        )
        reestimate_batch_norm(model, augmented)
        self.cache.mkdir(exist_ok=True)
        save_checkpoint(model, ready)
        return model


def find_subjects(
    checkpoints: Path | None, *, device: torch.device, out: Path
) -> dict[str, Subject]:
    """The paper's networks by their checkpoints, or else the MLPNet that ships with chita.

    Args:
        checkpoints: the folder with the files in CHECKPOINTS; None for the embedded network.
        device: where the networks run.
        out: the folder of the benchmark, under which networks made ready are kept.
    """
    cache = out / "networks"
    if checkpoints is None:
        mlpnet = zoo.get("mlpnet")
        assert mlpnet.embedded is not None
        shipped, images = mlpnet.embedded.checkpoint, mlpnet.embedded.data
        return {EMBEDDED: Subject(EMBEDDED, mlpnet, shipped, images, device, cache)}
    missing = [file for file in CHECKPOINTS.values() if not (checkpoints / file).is_file()]
    if missing:
        raise ChitaError(
            f"--checkpoints {checkpoints} must be a folder with {' and '.join(missing)}; leave it "
            "out to use the network that ships with chita"
        )
    return {
        name: Subject(name, zoo.get(name), checkpoints / file, zoo.get(name).data, device, cache)
        for name, file in CHECKPOINTS.items()
    }
