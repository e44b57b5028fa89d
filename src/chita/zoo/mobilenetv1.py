"""MobileNetV1 1.0/224 for ImageNet: with batch norm, and with batch norm folded into biases.

It has a stem and 13 depthwise separable blocks: a 3 x 3 convolution of each channel separately,
then a 1 x 1 convolution across channels.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

CLASSES = 1000
_STEM = 32
# (channels, stride) of each block.
_BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip


class ConvBN(nn.Module):
    """A padded convolution, batch norm and ReLU; only the stride changes the size."""

    def __init__(
        self, channels_in: int, channels: int, *, kernel: int, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            channels_in, channels, kernel,
            stride=stride, padding=kernel // 2, groups=groups, bias=False,
        )  # fmt: skip
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, channels_in, H, W) to (B, channels, H / stride, W / stride)."""
        hidden: Tensor = self.bn(self.conv(images))
        return hidden.relu()


class Block(nn.Module):
    """A depthwise separable convolution with batch norm."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.depthwise = ConvBN(
            channels_in, channels_in, kernel=3, stride=stride, groups=channels_in
        )
        self.pointwise = ConvBN(channels_in, channels, kernel=1)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, channels_in, H, W) to (B, channels, H / stride, W / stride)."""
        hidden: Tensor = self.pointwise(self.depthwise(images))
        return hidden


class MobileNetV1(nn.Module):
    """The paper's network; the outputs are logits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBN(3, _STEM, kernel=3, stride=2)
        self.blocks = nn.Sequential(*(Block(*shape) for shape in _block_shapes()))
        self.fc = nn.Linear(_BLOCKS[-1][0], CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 3, 224, 224) normalised images to (B, 1000) logits."""
        hidden = self.blocks(self.stem(images))
        logits: Tensor = self.fc(hidden.mean(dim=(2, 3)))
        return logits


class FoldedBlock(nn.Module):
    """A depthwise separable convolution with biases, ReLU6 and TensorFlow's SAME padding."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.depthwise = _same_conv(channels_in, channels_in, stride=stride, groups=channels_in)
        self.pointwise = nn.Conv2d(channels_in, channels, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, channels_in, H, W) to (B, channels, H / stride, W / stride)."""
        hidden = F.relu6(self.depthwise(_pad_same(images, self.depthwise)))
        return F.relu6(self.pointwise(hidden))


class MobileNetV1Folded(nn.Module):
    """TensorFlow's network with batch norm folded into biases; the outputs are logits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _same_conv(3, _STEM, stride=2)
        self.blocks = nn.Sequential(*(FoldedBlock(*shape) for shape in _block_shapes()))
        self.fc = nn.Linear(_BLOCKS[-1][0], CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 3, 224, 224) images in [-1, 1] to (B, 1000) logits."""
        hidden = F.relu6(self.stem(_pad_same(images, self.stem)))
        hidden = self.blocks(hidden)
        logits: Tensor = self.fc(hidden.mean(dim=(2, 3)))
        return logits


def _block_shapes() -> list[tuple[int, int, int]]:
    """Return (channels in, channels, stride) of each block."""
    channels_in = (_STEM, *(channels for channels, _ in _BLOCKS[:-1]))
    return [
        (before, channels, stride)
        for before, (channels, stride) in zip(channels_in, _BLOCKS, strict=True)
    ]


def _same_conv(channels_in: int, channels: int, *, stride: int, groups: int = 1) -> nn.Conv2d:
    """Return a 3 x 3 convolution; with a stride it requires `_pad_same` before it."""
    padding = 1 if stride == 1 else 0
    return nn.Conv2d(channels_in, channels, 3, stride=stride, padding=padding, groups=groups)


def _pad_same(images: Tensor, conv: nn.Conv2d) -> Tensor:
    """Pad as TensorFlow does before a convolution of stride 2: even sizes only right and bottom."""
    if conv.stride == (1, 1):
        return images
    height, width = images.shape[-2:]
    return F.pad(images, (width % 2, 1, height % 2, 1))
