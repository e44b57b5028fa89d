"""The axes of a weight, against what a layer does with it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from chita.model.layers import WITHIN_CHANNEL, Axes, axes_of, channel_dim
from chita.model.weights import Weights, weight_axes

LAYERS = {
    "linear": (nn.Linear(3, 4), (1, 3)),
    "transformers": (Conv1D(4, 3), (1, 3)),
    "convolution": (nn.Conv2d(3, 4, (2, 1)), (1, 3, 6, 6)),
    "grouped": (nn.Conv1d(4, 6, 3, groups=2), (1, 4, 7)),
    "transposed": (nn.ConvTranspose2d(3, 4, 2), (1, 3, 5, 5)),
    "transposed, grouped": (nn.ConvTranspose1d(4, 6, 3, groups=2), (1, 4, 5)),
}


def channel_moved(layer: nn.Module, place: int, shape: tuple[int, ...]) -> int:
    """The one output channel that a weight has a part in, by trying."""
    weight = layer.get_parameter("weight")
    with torch.no_grad():
        before = layer(torch.ones(shape))
        weight.view(-1)[place] += 1.0
        after = layer(torch.ones(shape))
        weight.view(-1)[place] -= 1.0
    dim = 1 if isinstance(layer, nn.modules.conv._ConvNd) else -1
    moved = (after - before).abs().movedim(dim, 0).flatten(1).sum(1) > 0.5
    return int(moved.nonzero().item())


def numbered_channels(axes: Axes) -> Tensor:
    """The output channel of each weight, as the axes have it."""
    numbers = torch.arange(axes.groups * axes.outputs).view(axes.groups, 1, axes.outputs, 1, 1)
    return numbers.expand(axes).flatten()


@pytest.mark.parametrize("name", LAYERS)
def test_the_channel_of_each_weight(name: str) -> None:
    layer, shape = LAYERS[name]
    weight = layer.get_parameter("weight")
    axes = axes_of(layer, "weight")
    assert math.prod(axes) == weight.numel()
    truth = [channel_moved(layer, place, shape) for place in range(weight.numel())]
    assert numbered_channels(axes).tolist() == truth


def test_what_is_within_a_channel_is_all_but_groups_and_outputs() -> None:
    assert {Axes._fields[dim] for dim in range(5) if dim not in WITHIN_CHANNEL} == {
        "groups",
        "outputs",
    }


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.layer = nn.ConvTranspose2d(6, 4, 3)


def test_vectors_have_a_channel_for_each_entry_and_a_scalar_is_one() -> None:
    model = Scaled()
    found = weight_axes(model, Weights(model, "*"))
    assert list(found) == ["scale", "layer.weight", "layer.bias"]
    assert found["scale"] == (1, 1, 1, 1, 1)
    assert found["layer.weight"] == (1, 6, 4, 1, 9)
    assert found["layer.bias"] == (1, 1, 4, 1, 1)


@pytest.mark.parametrize("name", LAYERS)
def test_the_channels_of_an_output_lie_along_one_dimension(name: str) -> None:
    """With or without a dimension for the samples."""
    layer, shape = LAYERS[name]
    channels = len(layer.get_parameter("bias"))
    for x in (torch.ones(shape), torch.ones(shape[1:])):
        if not (isinstance(layer, Conv1D) and x.ndim == 1):  # which it does not take
            assert layer(x).shape[channel_dim(layer)] == channels
