"""The shortcut of a residual block."""

from __future__ import annotations

from torch import nn


def shortcut(channels_in: int, channels: int, stride: int) -> nn.Module:
    """The identity or, where the shape changes, a 1 x 1 convolution and batch norm."""
    if stride == 1 and channels_in == channels:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False), nn.BatchNorm2d(channels)
    )
