"""New inputs for recovery, which the dense network answers: views of images, means of samples.

The dense network answers any input. Training on new ones keeps it from fitting the answers of few
samples. An input is the mean of two samples (mixup; Zhang et al. 2018, Beyer et al. 2022). Colour
images, of shape (B, 3, H, W), are mirrored at random before, and large ones are cropped.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor
from torch.nn import functional

from chita.model.fast_arithmetic import fast_format
from chita.model.samples.batch import Batch, join
from chita.model.samples.transfer import sent

COLOURS = 3
LARGE = int(os.environ.get("LARGE", 64))  # pixels of the shorter side of an image that is cropped
LEAST_AREA = float(os.environ.get("AREA", 0.25))  # of a crop, relative to the image


def can_mix(batch: Batch) -> bool:
    """Return whether a mean of two inputs is an input: not for tokens, nor for dicts of them."""
    inputs = batch.content[0] if isinstance(batch.content, tuple) else ()
    return bool(inputs) and all(isinstance(x, Tensor) and x.is_floating_point() for x in inputs)


def new_inputs(batches: list[Batch], generator: torch.Generator) -> Batch:
    """Return a new input for each sample of some batches of one size, all joined.

    Args:
        batches: the batches; `can_mix` is true for them.
        generator: a generator of the CPU.
    """
    joined = join(batches)
    inputs = joined.content[0]  # type: ignore[index]
    share = torch.rand(len(batches), batches[0].size, generator=generator)
    mixed = tuple(_means(x, sent(share.to(x.dtype), x.device)) for x in inputs)
    if all(_are_colour_images(x) for x in mixed):
        views = _random_views(joined.size, generator)
        mixed = tuple(_viewed(x, views) for x in mixed)
    return Batch((mixed, ()), joined.size)


def _means(x: Tensor, share: Tensor) -> Tensor:
    """Return means of each sample and the next one of its batch.

    Args:
        x: the samples of all batches, (batches * size, ...).
        share: the weight of each sample in its mean, (batches, size).
    """
    each = x.reshape(*share.shape, *x.shape[1:])
    weight = share.view(*share.shape, *[1] * (x.ndim - 1))
    return torch.lerp(each.roll(1, 1), each, weight).flatten(0, 1)


def _are_colour_images(x: Tensor) -> bool:
    return x.ndim == 4 and x.shape[1] == COLOURS


def _random_views(count: int, generator: torch.Generator) -> Tensor:
    """Return maps from the coordinates of views, from -1 to 1, to those of images, (count, 2, 3).

    A view is a crop of at least LEAST_AREA of the image, half of them mirrored.
    """
    drawn = torch.rand(count, 4, generator=generator)
    side = (LEAST_AREA + (1 - LEAST_AREA) * drawn[:, 0]).sqrt()
    places = (2 * drawn[:, 1:3] - 1) * (1 - side[:, None])
    sign = torch.where(drawn[:, 3] < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(side)
    rows = (side * sign, zero, places[:, 0], zero, side, places[:, 1])
    return torch.stack(rows, 1).view(count, 2, 3)


def _viewed(x: Tensor, views: Tensor) -> Tensor:
    """Return the views of images; small images are mirrored only, since their crops are blurred."""
    views = sent(views.to(x.dtype), x.device)
    if min(x.shape[-2:]) < LARGE:
        return torch.where(views[:, :1, :1, None] < 0, x.flip(-1), x)
    grid = functional.affine_grid(views, list(x.shape), align_corners=False)
    found = functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    return fast_format(found)
