import copy

import pytest
import torch
from torch import Tensor, nn

from chita import zoo
from chita.paper.robustness.networks import DepthwiseNet
from chita.paper.robustness.rescale import fold_batch_norm, rescale
from chita.paper.robustness.specimens import MLPNET_PAIRS, RESNET20_PAIRS


def random_network(build: type[nn.Module]) -> nn.Module:
    """Weights, biases and statistics that all matter."""
    model = build().eval()
    generator = torch.Generator().manual_seed(0)
    for name, tensor in model.state_dict().items():
        if "running_var" in name:
            tensor.uniform_(0.5, 2.0, generator=generator)
        elif tensor.is_floating_point():
            scale = tensor[0].numel() ** -0.5 if tensor.ndim > 1 else 0.5
            tensor.normal_(std=scale, generator=generator)
    return model


def images(channels: int, side: int) -> Tensor:
    return torch.randn(8, channels, side, side, generator=torch.Generator().manual_seed(1))


def same_function(one: nn.Module, other: nn.Module, x: Tensor) -> bool:
    with torch.no_grad():
        expected = one(x)
        return torch.allclose(expected, other(x), rtol=1e-4, atol=1e-4 * float(expected.std()))


@pytest.mark.parametrize(
    ("build", "x"),
    [(zoo.ResNet20, images(3, 32)), (DepthwiseNet, images(1, 28))],
    ids=["resnet20", "depthwise"],
)
def test_a_folded_network_computes_the_same_without_batch_norm(
    build: type[nn.Module], x: Tensor
) -> None:
    model = random_network(build)
    folded = copy.deepcopy(model)
    fold_batch_norm(folded)
    assert same_function(model, folded, x)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    weights = [name for name, p in model.named_parameters() if p.ndim > 1]
    assert weights == [name for name, p in folded.named_parameters() if p.ndim > 1]
    assert not torch.equal(model.get_parameter(weights[0]), folded.get_parameter(weights[0]))


def test_a_rescaled_resnet20_computes_the_same() -> None:
    folded = random_network(zoo.ResNet20)
    fold_batch_norm(folded)
    rescaled = copy.deepcopy(folded)
    rescale(rescaled, RESNET20_PAIRS)
    assert same_function(folded, rescaled, images(3, 32))
    first, second = (
        rescaled.get_parameter(f"layer2.0.{name}.weight")
        / folded.get_parameter(f"layer2.0.{name}.weight")
        for name in ("conv1", "conv2")
    )
    assert torch.allclose(first, torch.tensor(1000.0))
    assert torch.allclose(second, torch.tensor(0.001))
    assert torch.equal(rescaled.layer2[0].conv2.bias, folded.layer2[0].conv2.bias)
    assert len(RESNET20_PAIRS) == 9


def test_a_rescaled_mlpnet_computes_the_same() -> None:
    model = random_network(zoo.MLPNet)
    rescaled = copy.deepcopy(model)
    rescale(rescaled, MLPNET_PAIRS)
    assert same_function(model, rescaled, images(1, 28))
    assert rescaled.fc1.weight.abs().mean() > 500 * model.fc1.weight.abs().mean()


def test_relu6_would_not_stand_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU6(), nn.Linear(4, 4))
    rescaled = copy.deepcopy(model)
    rescale(rescaled, [("0", "2")])
    assert not same_function(model, rescaled, torch.randn(8, 4))
