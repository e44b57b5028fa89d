from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from chita import ChitaError, data, zoo
from chita.data.fetch import locate
from chita.data.sources import SOURCES
from chita.files.checkpoint import load_checkpoint
from chita.model.accuracy import accuracy
from chita.model.batch_norm import reestimate_batch_norm
from chita.model.weights import Weights
from tests.support.messages import naming

SHARED = Path(__file__).parents[2] / "../shared/checkpoints"
CHECKPOINTS = {
    "mlpnet": SHARED / "mlpnet_mnist.safetensors",
    "resnet20": SHARED / "resnet20_cifar10.safetensors",
    "mobilenetv1-folded": SHARED / "mobilenetv1_imagenet_folded.safetensors",
}
IMAGENET = ("mobilenetv1", "mobilenetv1-folded", "resnet50")


def paper_checkpoint(name: str) -> Path:
    if not CHECKPOINTS[name].exists():
        pytest.skip(f"the checkpoint of {name} is not on this machine")
    return CHECKPOINTS[name]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("mlpnet", 32_360),
        ("resnet20", 268_336),
        ("mobilenetv1", 4_209_088),
        ("mobilenetv1-folded", 4_209_088),
        ("resnet50", 25_502_912),
    ],
)
def test_prunable_weights_are_the_papers(name: str, count: int) -> None:
    network = zoo.get(name)
    weights = Weights(network.build(), include=network.prunable)
    assert weights.size == count
    assert all("bn" not in weight.name for weight in weights)
    assert all(weight.parameter.ndim > 1 for weight in weights)


def test_resnet20_keeps_its_shortcuts() -> None:
    network = zoo.get("resnet20")
    weights = Weights(network.build(), include=network.prunable)
    assert all("downsample" not in weight.name for weight in weights)


@pytest.mark.parametrize("name", list(CHECKPOINTS))
def test_keys_are_those_of_the_checkpoints(name: str) -> None:
    found = load_file(paper_checkpoint(name))
    own = zoo.get(name).build().state_dict()
    assert {key: tensor.shape for key, tensor in own.items()} == {
        key: tensor.shape for key, tensor in found.items()
    }


@pytest.mark.parametrize(
    ("name", "shape"), [("mlpnet", (5, 1, 28, 28)), ("resnet20", (5, 3, 32, 32))]
)
def test_outputs(name: str, shape: tuple[int, ...]) -> None:
    outputs = zoo.get(name).build().eval()(torch.rand(shape))
    assert outputs.shape == (5, 10)
    if name == "mlpnet":  # log-probabilities
        assert torch.allclose(outputs.exp().sum(dim=1), torch.ones(5))


def test_mlpnet_has_the_papers_accuracy() -> None:
    if locate(SOURCES["mnist"]) is None:
        pytest.skip("mnist is not on this machine")
    model = zoo.MLPNet()
    load_checkpoint(model, paper_checkpoint("mlpnet"))
    assert accuracy(model, data.Batches(data.load("mnist").test, 1000)) == 93.97


@pytest.mark.slow
def test_resnet20_learns_its_statistics_from_augmented_images() -> None:
    """All of CIFAR-10 gives 91.4 %; a tenth of it is close and takes seconds."""
    if locate(SOURCES["cifar10"]) is None:
        pytest.skip("cifar10 is not on this machine")
    network, splits = zoo.get("resnet20"), data.load("cifar10")
    model = network.build()
    load_checkpoint(model, paper_checkpoint("resnet20"))
    augmented = data.Batches(
        splits.train, 128, shuffle=True, augment=network.recipe.augment, limit=5000
    )
    reestimate_batch_norm(model, augmented)
    assert accuracy(model, data.Batches(splits.test, 500, limit=2000)) > 90


def test_embedded_mlpnet_is_trained() -> None:
    embedded = zoo.get("mlpnet").embedded
    assert embedded is not None
    model = zoo.MLPNet()
    load_checkpoint(model, embedded.checkpoint)
    assert accuracy(model, data.Batches(data.load(embedded.data).test, 1000)) > 96.5


def test_every_data_set_named_exists() -> None:
    for network in zoo.NETWORKS.values():
        assert (network.data in data.NAMES) == (network.name not in IMAGENET)


@pytest.mark.parametrize("name", IMAGENET)
def test_imagenet_networks_say_how_they_want_pictures(name: str) -> None:
    network = zoo.get(name)
    assert network.preprocessing is not None
    assert (network.preprocessing.size, network.preprocessing.resize) == (224, 256)
    assert network.classes == 1000
    assert network.recipe.augment == data.RandomResizedCrop(224)


def test_unknown_name() -> None:
    with pytest.raises(ChitaError, match=naming("vgg", "mlpnet", "resnet20")):
        zoo.get("vgg")
