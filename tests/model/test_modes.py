import pytest
import torch
from torch import nn

from chita.model.modes import (
    buffers_restored,
    convolution_trials,
    device_of,
    differentiable,
    evaluating,
    modes_restored,
)
from chita.model.weights import Weights


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 2))
    model[1].eval()
    model[2].weight.requires_grad_(False)
    return model


def flags(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def test_each_module_gets_its_own_mode_back() -> None:
    model = network()
    with pytest.raises(KeyboardInterrupt), evaluating(model):
        assert flags(model) == [False] * 4
        raise KeyboardInterrupt
    assert flags(model) == [True, True, False, True]
    with modes_restored(model):
        model.train()
        assert flags(model) == [True] * 4
    assert flags(model) == [True, True, False, True]


def test_batch_norm_forgets_what_it_has_seen() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model(torch.randn(4, 2))
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with pytest.raises(KeyboardInterrupt), buffers_restored(model):
        model(torch.randn(4, 2))
        assert int(model[1].num_batches_tracked) == 2
        raise KeyboardInterrupt
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_gradients_reach_frozen_weights_in_any_mode() -> None:
    model = network()
    weights = Weights(model)
    inputs = torch.ones(1, 2)
    with torch.no_grad(), differentiable(weights):
        gradients = torch.autograd.grad(
            model(inputs).sum(), [weight.parameter for weight in weights]
        )
    assert gradients[1].abs().sum() > 0
    assert [weight.parameter.requires_grad for weight in weights] == [True, False]


def test_device_of_a_model_without_parameters() -> None:
    assert device_of(nn.ReLU()) == torch.device("cpu")
    assert device_of(nn.BatchNorm1d(2, affine=False, device="meta")) == torch.device("meta")


def test_the_setting_of_trials_comes_back() -> None:
    before = torch.backends.cudnn.benchmark
    with pytest.raises(KeyboardInterrupt), convolution_trials(not before):
        assert torch.backends.cudnn.benchmark is not before
        raise KeyboardInterrupt
    assert torch.backends.cudnn.benchmark is before
