"""ResNet50 for ImageNet, under torchvision's names: stages of 3, 4, 6 and 3 bottlenecks."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from chita.zoo.resnet20 import shortcut

CLASSES = 1000
_EXPANSION = 4


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions and a shortcut, a convolution if the shape changes.

    The stride is that of the 3 x 3 convolution, as in torchvision.
    """

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels = _EXPANSION * width
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels)
        self.downsample = shortcut(channels_in, channels, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, channels_in, H, W) to (B, 4 width, H / stride, W / stride)."""
        hidden = self.bn1(self.conv1(images)).relu()
        hidden = self.bn2(self.conv2(hidden)).relu()
        hidden = self.bn3(self.conv3(hidden))
        total: Tensor = hidden + self.downsample(images)
        return total.relu()


class ResNet50(nn.Module):
    """ResNet50, whose outputs are logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(64, 64, blocks=3, stride=1)
        self.layer2 = _stage(256, 128, blocks=4, stride=2)
        self.layer3 = _stage(512, 256, blocks=6, stride=2)
        self.layer4 = _stage(1024, 512, blocks=3, stride=2)
        self.fc = nn.Linear(2048, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 3, 224, 224) normalised images to (B, 1000) logits."""
        hidden = self.bn1(self.conv1(images)).relu()
        hidden = F.max_pool2d(hidden, 3, stride=2, padding=1)
        hidden = self.layer4(self.layer3(self.layer2(self.layer1(hidden))))
        logits: Tensor = self.fc(hidden.mean(dim=(2, 3)))
        return logits


def _stage(channels_in: int, width: int, *, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(channels_in, width, stride)
    rest = (Bottleneck(_EXPANSION * width, width, 1) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)
