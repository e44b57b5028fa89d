"""ResNet50 for ImageNet, under torchvision's names: stages of 3, 4, 6 and 3 bottlenecks."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from chita.zoo.resnet20 import shortcut

CLASSES = 1000
_EXPANSION = 4


@dataclass(frozen=True)
class Variant:
    """What differs between the published variants of ResNet50.

    Args:
        early_stride: whether the first 1 x 1 convolution of a stage has its stride, as in the
            original network and in Keras. Otherwise the 3 x 3 convolution has it, as in
            torchvision.
        bias: whether convolutions have biases, as in Keras.
        eps: the number that batch norm adds to the variance.
    """

    early_stride: bool = False
    bias: bool = False
    eps: float = 1e-5


TORCHVISION = Variant()
KERAS = Variant(early_stride=True, bias=True, eps=1e-3)


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions and a shortcut, a convolution if the shape changes."""

    def __init__(
        self, channels_in: int, width: int, stride: int, variant: Variant = TORCHVISION
    ) -> None:
        super().__init__()
        channels, bias, eps = _EXPANSION * width, variant.bias, variant.eps
        first, second = (stride, 1) if variant.early_stride else (1, stride)
        self.conv1 = nn.Conv2d(channels_in, width, 1, stride=first, bias=bias)
        self.bn1 = nn.BatchNorm2d(width, eps=eps)
        self.conv2 = nn.Conv2d(width, width, 3, stride=second, padding=1, bias=bias)
        self.bn2 = nn.BatchNorm2d(width, eps=eps)
        self.conv3 = nn.Conv2d(width, channels, 1, bias=bias)
        self.bn3 = nn.BatchNorm2d(channels, eps=eps)
        self.downsample = shortcut(channels_in, channels, stride, bias=bias, eps=eps)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, channels_in, H, W) to (B, 4 width, H / stride, W / stride)."""
        hidden = self.bn1(self.conv1(images)).relu()
        hidden = self.bn2(self.conv2(hidden)).relu()
        hidden = self.bn3(self.conv3(hidden))
        total: Tensor = hidden + self.downsample(images)
        return total.relu()


class ResNet50(nn.Module):
    """ResNet50, whose outputs are logits.

    Args:
        variant: the variant of the network that the weights need, such as `KERAS`.
    """

    def __init__(self, variant: Variant = TORCHVISION) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=variant.bias)
        self.bn1 = nn.BatchNorm2d(64, eps=variant.eps)
        self.layer1 = _stage(64, 64, blocks=3, stride=1, variant=variant)
        self.layer2 = _stage(256, 128, blocks=4, stride=2, variant=variant)
        self.layer3 = _stage(512, 256, blocks=6, stride=2, variant=variant)
        self.layer4 = _stage(1024, 512, blocks=3, stride=2, variant=variant)
        self.fc = nn.Linear(2048, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 3, 224, 224) normalised images to (B, 1000) logits."""
        hidden = self.bn1(self.conv1(images)).relu()
        hidden = F.max_pool2d(hidden, 3, stride=2, padding=1)
        hidden = self.layer4(self.layer3(self.layer2(self.layer1(hidden))))
        logits: Tensor = self.fc(hidden.mean(dim=(2, 3)))
        return logits


def _stage(
    channels_in: int, width: int, *, blocks: int, stride: int, variant: Variant
) -> nn.Sequential:
    first = Bottleneck(channels_in, width, stride, variant)
    rest = (Bottleneck(_EXPANSION * width, width, 1, variant) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)
