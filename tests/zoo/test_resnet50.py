from pathlib import Path

import pytest
import torch

from chita.data import Batches
from chita.model.accuracy import accuracy
from chita.zoo import ResNet50
from chita.zoo.resnet50 import KERAS, TORCHVISION, Variant
from chita.zoo.trained import open_trained
from chita.zoo.weights import find_weights


def torchvision_shapes() -> dict[str, tuple[int, ...]]:
    """Built from the scheme of torchvision's names."""
    shapes: dict[str, tuple[int, ...]] = {}

    def pair(conv: str, bn: str, shape: tuple[int, ...]) -> None:
        shapes[f"{conv}.weight"] = shape
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{bn}.{part}"] = shape[:1]
        shapes[f"{bn}.num_batches_tracked"] = ()

    pair("conv1", "bn1", (64, 3, 7, 7))
    channels = 64
    for layer, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
        for block in range(blocks):
            name = f"layer{layer}.{block}"
            pair(f"{name}.conv1", f"{name}.bn1", (width, channels, 1, 1))
            pair(f"{name}.conv2", f"{name}.bn2", (width, width, 3, 3))
            pair(f"{name}.conv3", f"{name}.bn3", (4 * width, width, 1, 1))
            if block == 0:
                downsample = f"{name}.downsample"
                pair(f"{downsample}.0", f"{downsample}.1", (4 * width, channels, 1, 1))
            channels = 4 * width
    return shapes | {"fc.weight": (1000, 2048), "fc.bias": (1000,)}


def test_keys_and_shapes_are_torchvisions() -> None:
    own = {name: tuple(tensor.shape) for name, tensor in ResNet50().state_dict().items()}
    assert list(own.items()) == list(torchvision_shapes().items())
    assert len(own) == 320


@pytest.mark.parametrize(("variant", "count"), [(TORCHVISION, 25_557_032), (KERAS, 25_583_592)])
def test_parameters(variant: Variant, count: int) -> None:
    model = ResNet50(variant)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize(
    ("variant", "strided_layer", "kernel"), [(TORCHVISION, "conv2", 3), (KERAS, "conv1", 1)]
)
def test_strides(variant: Variant, strided_layer: str, kernel: int) -> None:
    strided = {
        name: module.kernel_size[0]
        for name, module in ResNet50(variant).named_modules()
        if isinstance(module, torch.nn.Conv2d) and module.stride == (2, 2)
    }
    expected = {"conv1": 7}
    for layer in (2, 3, 4):
        expected |= {f"layer{layer}.0.{strided_layer}": kernel, f"layer{layer}.0.downsample.0": 1}
    assert strided == expected


def test_keras_adds_biases_and_a_larger_eps() -> None:
    model = ResNet50(KERAS)
    convolutions = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) == 53 and all(m.bias is not None for m in convolutions)
    assert {m.eps for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)} == {1e-3}
    plain = ResNet50().state_dict().keys()
    added = {name for name in model.state_dict() if name not in plain}
    assert len(added) == 53 and {name.rsplit(".", 1)[1] for name in added} == {"bias"}


@pytest.mark.slow
def test_fetched_weights_know_imagenet(tmp_path: Path) -> None:
    """76.7 % of the 1,000 second pictures are right; of these 20, most."""
    pictures = Path(__file__).parents[2] / "../shared/data/imagenet-val2"
    if find_weights("resnet50") is None or not pictures.is_dir():
        pytest.skip("the weights of ResNet50 and pictures of ImageNet are not on this machine")
    pytest.importorskip("PIL", reason="pictures need pillow")
    for name in ("train", "val"):
        (tmp_path / name).symlink_to(pictures)
    trained = open_trained("resnet50", data_name=f"imagefolder:{tmp_path}")
    some = trained.splits.test[torch.arange(1, 2000, 100)]  # the second one of every 50th class
    assert accuracy(trained.model, Batches(some, 20)) > 55


def test_outputs() -> None:
    model = ResNet50().eval()
    seen = []
    for layer in (model.layer1, model.layer2, model.layer3, model.layer4):
        layer.register_forward_hook(lambda module, args, output: seen.append(output.shape[1:]))
    with torch.no_grad():
        assert model(torch.rand(1, 3, 64, 64)).shape == (1, 1000)
    assert seen == [(256, 16, 16), (512, 8, 8), (1024, 4, 4), (2048, 2, 2)]
