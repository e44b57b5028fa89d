"""ResNet20 for CIFAR-10: three stages of three basic blocks, with 16, 32 and 64 channels."""

from __future__ import annotations

from torch import Tensor, nn


def shortcut(
    channels_in: int, channels: int, stride: int, *, bias: bool = False, eps: float = 1e-5
) -> nn.Module:
    """Return the identity or, if the shape changes, a 1 x 1 convolution and batch norm."""
    if stride == 1 and channels_in == channels:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, 1, stride=stride, bias=bias),
        nn.BatchNorm2d(channels, eps=eps),
    )


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut: a 1 x 1 convolution if the shape changes."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = shortcut(channels_in, channels, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, channels_in, H, W) to (B, channels, H / stride, W / stride)."""
        hidden = self.bn1(self.conv1(images)).relu()
        hidden = self.bn2(self.conv2(hidden))
        total: Tensor = hidden + self.downsample(images)
        return total.relu()


class ResNet20(nn.Module):
    """ResNet20, whose outputs are logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, stride=1)
        self.layer2 = _stage(16, 32, stride=2)
        self.layer3 = _stage(32, 64, stride=2)
        self.fc = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 3, 32, 32) normalised images to (B, 10) logits."""
        hidden = self.bn1(self.conv1(images)).relu()
        hidden = self.layer3(self.layer2(self.layer1(hidden)))
        logits: Tensor = self.fc(hidden.mean(dim=(2, 3)))
        return logits


def _stage(channels_in: int, channels: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(
        BasicBlock(channels_in, channels, stride),
        BasicBlock(channels, channels, 1),
        BasicBlock(channels, channels, 1),
    )
