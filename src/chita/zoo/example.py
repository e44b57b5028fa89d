"""Example inputs of a network, to time and to export it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.model.forward import Example
from chita.model.samples.arrays import LABELS
from chita.model.samples.batch import map_tensors
from chita.model.samples.given_data import read_inputs
from chita.zoo.networks import Network
from chita.zoo.trained import Trained


def example_inputs(trained: Trained, batch: int) -> Example:
    """Return inputs for a batch: the first samples of the data, or random images without data.

    Args:
        trained: the network, and its data if there are any.
        batch: the number of samples; the samples repeat if there are fewer.

    Raises:
        ChitaError: there are no data, and the inputs of the network are unknown.
    """
    if trained.data_name is None:
        return random_images(trained.network, batch)
    arguments, size = next(read_inputs(trained.model, trained.calibration), ((), 0))
    if not size:
        raise ChitaError(f"{trained.data_name} gives no example: its first batch has no samples")
    inputs: Any = arguments if len(arguments) > 1 else arguments[0]
    if isinstance(inputs, Mapping):
        inputs = {name: value for name, value in inputs.items() if name not in LABELS}
    index = torch.arange(batch) % size
    return map_tensors(lambda tensor: tensor[index.to(tensor.device)], inputs)


def random_images(network: Network, batch: int) -> Tensor:
    """Draw images of the network's input size from a fixed seed, (batch, C, H, W)."""
    shape = network.input_shape
    if shape is None:
        raise ChitaError(
            f"the inputs of {network.name} are unknown: pass --data, whose first samples are the "
            "example"
        )
    return torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0))
