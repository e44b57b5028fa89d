"""Augmentation of a batch of images: pad 4, random crop, random horizontal flip."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

PADDING = 4


def pad_crop_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Shift every image by up to 4 pixels each way and mirror it with probability one half.

    Args:
        images: (N, C, H, W), any type; what is shifted in is zero, black before normalisation.
        generator: a CPU generator, so that the choices are the same on every device.
    """
    top, left = torch.randint(2 * PADDING + 1, (2, len(images)), generator=generator)
    flip = torch.rand(len(images), generator=generator) < 0.5
    device = images.device
    return crop_and_flip(images, top=top.to(device), left=left.to(device), flip=flip.to(device))


def crop_and_flip(images: Tensor, *, top: Tensor, left: Tensor, flip: Tensor) -> Tensor:
    """Crop each padded image at its own offset and mirror the chosen ones, all in one gather.

    Args:
        images: (N, C, H, W), padded here by 4 zeros on each side.
        top: (N,) first row of each crop, in [0, 8].
        left: (N,) first column of each crop, in [0, 8].
        flip: (N,) bool.
    """
    count, channels, height, width = images.shape
    device = images.device
    padded = F.pad(images, (PADDING,) * 4)
    rows = top[:, None] + torch.arange(height, device=device)
    columns = left[:, None] + torch.arange(width, device=device)
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    return padded[
        torch.arange(count, device=device)[:, None, None, None],
        torch.arange(channels, device=device)[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]
