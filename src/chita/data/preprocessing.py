"""Preprocessing of images for a network: crops, normalisation and augmentation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

# Only the middle of a long, narrow image is used; resizing all of it could exhaust the memory.
_LONGEST = 4
_AREAS = (0.08, 1.0)
_RATIOS = (3 / 4, 4 / 3)
_TRIES = 10


@dataclass(frozen=True)
class Preprocessing:
    """The preprocessing of images for a network.

    Args:
        size: the size of the square input.
        resize: the length of the shorter side before the centre is cropped.
        mean: mean of each channel, of pixels scaled to [0, 1].
        std: standard deviation of each channel.
    """

    size: int = 224
    resize: int = 256
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def centre(self, image: Tensor) -> Tensor:
        """Return the crop for evaluation: (3, H, W) uint8 to (3, size, size)."""
        shorter = min(image.shape[1:])
        image = _middle(image, *(min(side, _LONGEST * shorter) for side in image.shape[1:]))
        height, width = (self.resize * side // shorter for side in image.shape[1:])
        return _middle(_resized(image, height, width), self.size, self.size)


@dataclass(frozen=True)
class RandomResizedCrop:
    """The augmentation of ImageNet: a random part of each image, resized, half of them mirrored.

    The area of the part is uniform in 8 to 100 % of the image, and its aspect ratio is log-uniform
    in 3/4 to 4/3.

    Args:
        size: the size of the square result.
    """

    size: int = 224

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Map (N, C, H, W) uint8 images of any size to (N, C, size, size)."""
        return torch.stack([self._crop(image, generator) for image in images])

    def _crop(self, image: Tensor, generator: torch.Generator) -> Tensor:
        part = _resized(_random_part(image, generator), self.size, self.size)
        return part.flip(2) if torch.rand((), generator=generator) < 0.5 else part


def _random_part(image: Tensor, generator: torch.Generator) -> Tensor:
    """Return a part of random area and shape, or the middle if no such part fits."""
    height, width = image.shape[1:]
    for _ in range(_TRIES):
        draws = torch.rand(4, generator=generator).tolist()
        area = height * width * (_AREAS[0] + draws[0] * (_AREAS[1] - _AREAS[0]))
        ratio = _RATIOS[0] * (_RATIOS[1] / _RATIOS[0]) ** draws[1]
        rows, columns = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < rows <= height and 0 < columns <= width:
            top, left = int(draws[2] * (height - rows + 1)), int(draws[3] * (width - columns + 1))
            return image[:, top : top + rows, left : left + columns]
    most_rows, most_columns = round(width / _RATIOS[0]), round(height * _RATIOS[1])
    return _middle(image, max(1, min(height, most_rows)), max(1, min(width, most_columns)))


def _middle(image: Tensor, height: int, width: int) -> Tensor:
    """Return the central part of that size."""
    top, left = round((image.shape[1] - height) / 2), round((image.shape[2] - width) / 2)
    return image[:, top : top + height, left : left + width]


def _resized(image: Tensor, height: int, width: int) -> Tensor:
    """Resize by bilinear interpolation with antialiasing, as Pillow does."""
    return F.interpolate(image[None], (height, width), mode="bilinear", antialias=True)[0]


PADDING = 4


def pad_crop_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Shift every image by up to 4 pixels each way and mirror it with probability one half.

    Args:
        images: (N, C, H, W), any type; shifted-in pixels are zero, black before normalisation.
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
