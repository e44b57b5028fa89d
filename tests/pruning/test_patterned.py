import logging

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from chita.errors import ChitaError
from chita.model.weights import Weights
from chita.pruning.config import PruneConfig
from chita.pruning.supports import Patterned, choose_weights, input_matrices
from tests.support.messages import naming


def matrix_of(module: nn.Module) -> torch.Tensor:
    matrix = input_matrices(module, Weights(module, "weight"))["weight"]
    assert matrix is not None
    return matrix


def moved_by(module: nn.Module, x: torch.Tensor, place: int) -> torch.Tensor:
    """Which outputs of a linear map a weight has a part in, and which inputs: by its gradient."""
    weight = module.get_parameter("weight")
    with torch.no_grad():
        weight.zero_()
        weight.view(-1)[place] = 1.0
    x = x.clone().requires_grad_()
    module(x).sum().backward()
    assert x.grad is not None
    return x.grad


def test_a_linear_layer_as_it_is() -> None:
    assert matrix_of(nn.Linear(6, 4)).tolist() == torch.arange(24).view(4, 6).tolist()


def test_conv1d_of_transformers_has_its_inputs_first() -> None:
    module = Conv1D(8, 6)  # outputs, inputs
    matrix = matrix_of(module)
    assert matrix.shape == (8, 6)
    for column in range(6):
        for place in matrix[:, column].tolist():
            assert moved_by(module, torch.ones(1, 6), place)[0].nonzero().tolist() == [[column]]


def test_a_convolution_has_its_channels_side_by_side() -> None:
    matrix = matrix_of(nn.Conv2d(3, 2, (2, 5)))
    weight = torch.arange(60).view(2, 3, 2, 5)
    by_hand = [
        [int(weight[o, c, y, x]) for y in range(2) for x in range(5) for c in range(3)]
        for o in range(2)
    ]
    assert matrix.tolist() == by_hand


@pytest.mark.parametrize("module", [nn.Conv1d(4, 6, 3), nn.Conv3d(4, 6, 2), nn.Conv2d(4, 6, 1)])
def test_other_convolutions(module: nn.Module) -> None:
    matrix = matrix_of(module)
    assert len(matrix) == 6
    # The first four inputs of an output are the channels at one position of the kernel.
    weight = module.get_parameter("weight")
    positions = weight[0, 0].numel()
    assert matrix[1, :4].tolist() == [4 * positions + positions * c for c in range(4)]


def test_a_grouped_convolution_has_the_channels_of_its_group() -> None:
    assert matrix_of(nn.Conv2d(8, 4, 3, groups=2)).shape == (4, 36)
    assert matrix_of(nn.Conv2d(8, 8, 3, groups=8)).shape == (8, 9)


def test_a_transposed_convolution_has_its_inputs_first() -> None:
    module = nn.ConvTranspose2d(4, 6, (2, 1), groups=2, bias=False)
    matrix = matrix_of(module)
    weight = torch.arange(24).view(4, 3, 2, 1)  # inputs, outputs of a group, kernel
    by_hand = [
        [int(weight[2 * group + c, o, y, 0]) for y in range(2) for c in range(2)]
        for group in range(2)
        for o in range(3)
    ]
    assert matrix.tolist() == by_hand


def mixed() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1), nn.Linear(12, 5)
    )


def test_weights_that_the_pattern_does_not_divide_stay_dense(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        weights = choose_weights(mixed(), PruneConfig(sparsity=0.5, pattern="2:4", recover=False))
    assert [weight.name for weight in weights] == ["2.weight", "3.weight"]
    assert "0.weight (8, 3, 3, 3), 1.weight (8, 1, 3, 3)" in caplog.text
    kept = choose_weights(
        mixed(), PruneConfig(sparsity=0.5, pattern="2:4", exclude="3.*", recover=False)
    )
    assert [weight.name for weight in kept] == ["2.weight"]


def test_or_are_an_error_where_that_is_asked_for() -> None:
    with pytest.raises(
        ChitaError, match=naming("2:4", "0.weight", "1.weight", "exclude", "strict=False")
    ):
        choose_weights(
            mixed(), PruneConfig(sparsity=0.5, pattern="2:4", strict=True, recover=False)
        )
    with pytest.raises(ChitaError, match=naming("2:4", "(3, 5)", "exclude")):
        choose_weights(nn.Linear(5, 3), PruneConfig(sparsity=0.5, pattern="2:4", recover=False))


def test_ids_units_and_counts() -> None:
    model = nn.Sequential(nn.Conv2d(4, 2, 3), nn.Linear(8, 3), Conv1D(5, 4))
    weights = Weights(model, "*.weight")
    patterned = Patterned(model, weights, "1:4")
    assert patterned.units == (36, 4, 20)
    groups = len(patterned.ids) // 4
    assert torch.bincount(patterned.ids).tolist() == [4] * groups
    conv = patterned.ids[:72].view(2, 4, 9)
    assert bool((conv == conv[:, :1]).all())  # the four channels at a position are a group
    assert bool((patterned.ids[96:].view(4, 5) == patterned.ids[96:101]).all())
    kept = torch.zeros(weights.size, dtype=torch.bool)
    kept[72:76] = True
    kept[76:78] = True
    assert patterned.counts(kept) == {0: groups - 2, 2: 1, 4: 1}
    assert Patterned(model[1], Weights(model[1]), "3x2").units == (24,)
