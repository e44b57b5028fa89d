"""New inputs for the dense network: means of samples, and mirrored colour images."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from chita.model.samples.batch import Batch
from chita.model.seeds import generator_of
from chita.pruning.recovery.augmentation import can_mix, new_inputs

SIZE, COUNT = 30, 4  # of a batch; batches


def images(channels: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Images whose first pixel states the sample, and whose last column alone is negative."""
    x = torch.ones(COUNT * SIZE, channels, 2, 5, dtype=dtype)
    x *= torch.arange(1, COUNT * SIZE + 1)[:, None, None, None]
    x[..., -1] *= -1
    return x


def made(*inputs: Tensor, key: int = 0) -> tuple[Tensor, ...]:
    batches = [Batch((inputs, ()), COUNT * SIZE)[i : i + SIZE] for i in range(0, 4 * SIZE, SIZE)]
    found = new_inputs(batches, generator_of(key))
    assert found.size == COUNT * SIZE
    content = found.content
    assert isinstance(content, tuple)
    return tuple(content[0])


def is_mirrored(x: Tensor) -> Tensor:
    """Whether the negative column of each image is the first one instead of the last one."""
    sides = (x[..., 0] < 0).flatten(1), (x[..., -1] < 0).flatten(1)
    assert bool((sides[0] ^ sides[1]).all())
    return sides[0].all(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_about_half_of_colour_images_are_mirrored(dtype: torch.dtype) -> None:
    (x,) = made(images(3, dtype))
    assert x.dtype == dtype and x.shape == (COUNT * SIZE, 3, 2, 5)
    assert 40 <= int(is_mirrored(x).sum()) <= 80
    original = torch.where(is_mirrored(x)[:, None, None, None], x.flip(-1), x)
    # A mean of a sample and its neighbour in the batch lies between the two.
    number = original[:, 0, 0, 0].view(COUNT, SIZE)
    own = torch.arange(1, COUNT * SIZE + 1, dtype=dtype).view(COUNT, SIZE)
    before = own.roll(1, 1)
    assert bool((number >= torch.minimum(own, before) - 1e-4).all())
    assert bool((number <= torch.maximum(own, before) + 1e-4).all())
    torch.testing.assert_close(original[:, 2, 1, -1], -original[:, 0, 0, 0])


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_other_inputs_keep_their_sides(channels: int) -> None:
    assert not bool(is_mirrored(made(images(channels))[0]).any())


def test_the_inputs_of_a_sample_are_mirrored_together() -> None:
    first, second = made(images(3), 2 * images(3))
    assert torch.equal(is_mirrored(first), is_mirrored(second))
    assert bool(is_mirrored(first).any())
    features = torch.randn(COUNT * SIZE, 3)
    assert not bool(is_mirrored(made(images(3), features)[0]).any())


def test_the_generator_determines_the_inputs() -> None:
    again, other = made(images(3)), made(images(3), key=1)
    assert torch.equal(again[0], made(images(3))[0])
    assert not torch.equal(again[0], other[0])


@pytest.mark.parametrize(
    ("content", "possible"),
    [
        (((torch.ones(2, 3),), ()), True),
        (((torch.ones(2, 3), torch.ones(2, 1)), ()), True),
        (((torch.ones(2, 3, dtype=torch.long),), ()), False),
        (((torch.ones(2, 3), torch.ones(2, dtype=torch.long)), ()), False),
        ({"input_ids": torch.ones(2, 3)}, False),
    ],
)
def test_tokens_and_dicts_cannot_be_mixed(content: object, possible: bool) -> None:
    assert can_mix(Batch(content, 2)) is possible  # type: ignore[arg-type]
