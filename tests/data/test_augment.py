import torch
from torch import Tensor

from chita.data.preprocessing import crop_and_flip, pad_crop_flip


def one_by_one(images: Tensor, top: Tensor, left: Tensor, flip: Tensor) -> Tensor:
    results = []
    for image, row, column, mirrored in zip(images, top, left, flip, strict=True):
        channels, height, width = image.shape
        padded = torch.zeros(channels, height + 8, width + 8, dtype=image.dtype)
        padded[:, 4:-4, 4:-4] = image
        crop = padded[:, row : row + height, column : column + width]
        results.append(crop.flip(2) if mirrored else crop)
    return torch.stack(results)


def test_equals_the_loop_over_images_for_every_offset() -> None:
    generator = torch.Generator().manual_seed(0)
    top, left, flip = torch.cartesian_prod(*map(torch.arange, (9, 9, 2))).unbind(1)
    images = torch.randint(256, (162, 3, 6, 5), dtype=torch.uint8, generator=generator)
    found = crop_and_flip(images, top=top, left=left, flip=flip.bool())
    assert found.dtype == torch.uint8
    assert torch.equal(found, one_by_one(images, top, left, flip))


def test_random_choices_cover_all_offsets_evenly() -> None:
    # The bright pixel in the middle of a 9 x 9 image shows the offset it was shifted by.
    images = torch.zeros(20_000, 1, 9, 9)
    images[:, :, 4, 4] = 1
    shifted = pad_crop_flip(images, torch.Generator().manual_seed(0))
    frequency = shifted.mean(dim=(0, 1))
    assert torch.allclose(frequency, torch.full((9, 9), 1 / 81), atol=0.004)


def test_half_of_the_images_are_flipped() -> None:
    images = torch.zeros(2000, 1, 20, 20)
    images[:, :, :, :10] = 1  # the left half is bright, whichever the shift
    results = pad_crop_flip(images, torch.Generator().manual_seed(0))
    bright_left = results[:, 0, 10, 5] == 1
    assert 0.45 < bright_left.float().mean() < 0.55
    assert torch.equal(bright_left, results[:, 0, 10, 14] == 0)


def test_same_generator_same_result() -> None:
    images = torch.rand(8, 3, 32, 32)
    first, second, other = (
        pad_crop_flip(images, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
