"""Layer kinds: what is pruned by default, the axes of weights, and the channels of outputs."""

from __future__ import annotations

import logging
import math

import pytest
import torch
import torch.nn.utils.prune
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from transformers.pytorch_utils import Conv1D as HuggingFaceConv1D

from chita.errors import ChitaError
from chita.model.layers import WITHIN_CHANNEL, Axes, axes_of, channel_dim
from chita.model.weights import Weights, weight_axes
from tests.curvature.truth import assert_right, labels, normal
from tests.support.messages import naming, says


def names(model: nn.Module, include: str | None = None) -> list[str]:
    return [weight.name for weight in Weights(model, include)]


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(4, 4),
        nn.Conv1d(4, 8, 3),
        nn.Conv2d(4, 8, 3, groups=2),
        nn.Conv2d(4, 4, 3, groups=4),
        nn.Conv3d(4, 2, 1),
        nn.ConvTranspose1d(4, 2, 2),
        nn.ConvTranspose2d(4, 4, 2, groups=2),
    ],
)
def test_linear_layers_and_convolutions_of_every_kind(layer: nn.Module) -> None:
    assert names(nn.Sequential(layer, nn.BatchNorm1d(4), nn.Embedding(3, 4))) == ["0.weight"]


def test_attention_in_one_matrix_and_in_three() -> None:
    assert names(nn.MultiheadAttention(4, 2)) == ["in_proj_weight", "out_proj.weight"]
    assert names(nn.MultiheadAttention(4, 2, kdim=3, vdim=5)) == [
        "q_proj_weight",
        "k_proj_weight",
        "v_proj_weight",
        "out_proj.weight",
    ]


class Conv1D(nn.Module):
    """As transformers has it: a Linear layer whose weight is (inputs, outputs)."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(normal(nx, nf).float())
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return out.view(*x.shape[:-1], self.nf)


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def test_a_transposed_linear_layer() -> None:
    model = nn.Sequential(Conv1D(5, 4), nn.Tanh(), Mean(), nn.Linear(5, 3))
    assert names(model) == ["0.weight", "3.weight"]
    assert_right(model, normal(8, 6, 4), labels(8), batch=2)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, dropout=0.5)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        padding = x[..., 0] > 1.0
        seen = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        logits: Tensor = self.fc(seen.mean(1))
        return logits


def test_gradients_of_attention_with_padding() -> None:
    x = normal(8, 5, 4).clamp_max(0.9)
    x[::2, 3:, 0] = 2.0
    assert_right(Attention(), x, labels(8), batch=2, row_by_row=("MultiheadAttention",))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.hidden = nn.Linear(4, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight


def test_a_head_that_is_the_embedding_is_left_dense_unless_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    assert names(Tied()) == ["hidden.weight"]
    assert says(caplog.text, "head.weight", "embedding")
    assert names(Tied(), include="head.weight") == ["embedding.weight"]


MASKED = nn.Linear(4, 4)
torch.nn.utils.prune.l1_unstructured(MASKED, "weight", 0.5)  # type: ignore[no-untyped-call]
NORMED = parametrizations.weight_norm(nn.Linear(4, 4))


@pytest.mark.parametrize(
    ("layer", "remedy"), [(MASKED, "prune.remove"), (NORMED, "remove_parametrizations")]
)
def test_weights_that_are_computed_are_left_dense_with_a_warning(
    caplog: pytest.LogCaptureFixture, layer: nn.Module, remedy: str
) -> None:
    assert names(nn.Sequential(layer, nn.Linear(4, 3))) == ["1.weight"]
    assert says(caplog.text, "0.weight", remedy)
    with pytest.raises(ChitaError, match=naming("prunable", "include=None", "exclude=None")):
        Weights(layer)


class Packed(nn.Module):
    """As torch.ao.nn.quantized has it."""

    scale = 1.0

    def weight(self) -> Tensor:
        return torch.ones(4, 4)


def test_quantized_layers_are_left_alone_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert names(nn.Sequential(Packed(), nn.Linear(4, 3))) == ["1.weight"]
    assert says(caplog.text, "0.weight", "quantized")


LAYERS = {
    "linear": (nn.Linear(3, 4), (1, 3)),
    "transformers": (HuggingFaceConv1D(4, 3), (1, 3)),
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


class WithScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.layer = nn.ConvTranspose2d(6, 4, 3)


def test_vectors_have_a_channel_for_each_entry_and_a_scalar_is_one() -> None:
    model = WithScale()
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
        if not (isinstance(layer, HuggingFaceConv1D) and x.ndim == 1):  # which it does not take
            assert layer(x).shape[channel_dim(layer)] == channels
