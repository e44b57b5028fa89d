"""New inputs for recovery, which the dense network answers: means of samples, mirrored images.

The dense network answers any input. Training on new ones keeps it from fitting the answers of few
samples. An input is the mean of two samples (mixup; Zhang et al. 2018, Beyer et al. 2022). Colour
images, of shape (B, 3, H, W), are also mirrored at random.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chita.model.samples.batch import Batch, join
from chita.model.samples.transfer import sent

COLOURS = 3


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
        turned = torch.rand(joined.size, generator=generator) < 0.5
        mixed = tuple(_mirrored(x, sent(turned, x.device)) for x in mixed)
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


def _mirrored(x: Tensor, turned: Tensor) -> Tensor:
    """Return the images, those of `turned`, (B,) bool, with left and right exchanged."""
    return torch.where(turned.view(-1, 1, 1, 1), x.flip(-1), x)
