from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, relu6

from chita import data, zoo
from chita.files.checkpoint import load_checkpoint
from chita.model.accuracy import accuracy
from chita.zoo.mobilenetv1 import FoldedBlock, MobileNetV1, MobileNetV1Folded

SHARED = Path(__file__).parents[2] / "../shared"


def size(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameters() -> None:
    """The paper's 4.2 million; a bias in place of the scale and shift of each channel."""
    channels = 32 + sum(
        before + after
        for before, after in zip(
            (32, 64, 128, 128, 256, 256, *(512,) * 6, 1024),
            (64, 128, 128, 256, 256, *(512,) * 6, 1024, 1024),
            strict=True,
        )
    )
    assert size(MobileNetV1()) == 4_231_976
    assert size(MobileNetV1Folded()) == 4_221_032 == 4_231_976 - channels


def test_pairs_of_convolution_and_batch_norm() -> None:
    layers = ["stem"]
    layers += [f"blocks.{i}.{kind}" for i in range(13) for kind in ("depthwise", "pointwise")]
    names = {f"{layer}.{part}.weight" for layer in layers for part in ("conv", "bn")}
    names |= {f"{layer}.bn.bias" for layer in layers} | {"fc.weight", "fc.bias"}
    assert {name for name, _ in MobileNetV1().named_parameters()} == names


@pytest.mark.parametrize("build", [MobileNetV1, MobileNetV1Folded])
def test_the_stem_and_four_blocks_halve_the_image(build: type[torch.nn.Module]) -> None:
    model = build().eval()
    seen = []
    for block in model.blocks:
        block.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    with torch.no_grad():
        assert model(torch.rand(2, 3, 96, 96)).shape == (2, 1000)
    assert [shape[2] for shape in seen] == [48, 24, 24, 12, 12, *[6] * 6, 3, 3]
    assert [shape[1] for shape in seen] == [64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]


def same_depthwise(images: Tensor, block: FoldedBlock, stride: int) -> Tensor:
    """Straight from TensorFlow's definition: what is padded in all, the larger half behind."""
    height, width = images.shape[-2:]
    pads = []
    for side in (height, width):
        total = max((-(-side // stride) - 1) * stride + 3 - side, 0)
        pads.append((total // 2, total - total // 2))
    padded = torch.zeros(
        *images.shape[:2], height + sum(pads[0]), width + sum(pads[1]), dtype=images.dtype
    )
    (top, _), (left, _) = pads
    padded[:, :, top : top + height, left : left + width] = images
    layer = block.depthwise
    return conv2d(padded, layer.weight, layer.bias, stride=stride, groups=images.shape[1])


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(8, 8), (7, 7), (8, 5), (1, 2)])
def test_same_padding_is_tensorflows(stride: int, shape: tuple[int, int]) -> None:
    block = FoldedBlock(4, 6, stride).double()
    images = torch.randn(2, 4, *shape, dtype=torch.float64)
    expected = relu6(block.pointwise(relu6(same_depthwise(images, block, stride))))
    assert expected.shape[-2:] == tuple(-(-side // stride) for side in shape)
    assert torch.allclose(block(images), expected)


@pytest.mark.slow
def test_folded_network_knows_imagenet(tmp_path: Path) -> None:
    """71.4 % of the whole validation set are right; of these 50 pictures, about two thirds."""
    pictures = SHARED / "data/imagenet-val2"
    checkpoint = SHARED / "checkpoints/mobilenetv1_imagenet_folded.safetensors"
    if not (pictures.is_dir() and checkpoint.exists()):
        pytest.skip("the folded MobileNetV1 and pictures of ImageNet are not on this machine")
    pytest.importorskip("PIL", reason="pictures need pillow")
    network = zoo.get("mobilenetv1-folded")
    model = network.build()
    load_checkpoint(model, checkpoint)
    for name in ("train", "val"):
        (tmp_path / name).symlink_to(pictures)
    assert network.preprocessing is not None
    test = data.image_folder(tmp_path, network.preprocessing, classes=1000).test
    some = test[torch.arange(1, 2000, 40)]  # the second picture of every 20th class
    assert accuracy(model, data.Batches(some, 25)) > 60
