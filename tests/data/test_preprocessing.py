import numpy as np
import pytest
import torch

from chita.data.preprocessing import Preprocessing, RandomResizedCrop
from tests.data.pictures import Image, noise


@pytest.mark.parametrize(
    "size", [(500, 375), (375, 500), (256, 256), (224, 224), (80, 61), (1, 1), (3, 2), (700, 200)]
)
def test_centre_is_what_pillow_gives(size: tuple[int, int]) -> None:
    """Shorter side to 256, then the centre: to one grey level, as torch and Pillow round."""
    width, height = size
    pixels = noise(height, width)
    if width >= height:
        wide, high = 256 * width // height, 256
    else:
        wide, high = 256, 256 * height // width
    left, top = round((wide - 224) / 2), round((high - 224) / 2)
    resized = Image.fromarray(pixels.numpy()).resize((wide, high), Image.Resampling.BILINEAR)
    expected = np.array(resized.crop((left, top, left + 224, top + 224))).astype(int)
    crop = Preprocessing().centre(pixels.permute(2, 0, 1))
    assert crop.shape == (3, 224, 224)
    assert crop.dtype == torch.uint8
    assert np.abs(crop.permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1


@pytest.mark.parametrize("shape", [(3, 1, 60_000), (3, 60_000, 1)])
def test_long_pictures_need_little_memory(shape: tuple[int, ...]) -> None:
    """Resized whole, this one would have 4 billion pixels; only its middle is seen."""
    image = torch.zeros(shape, dtype=torch.uint8)
    image.flatten(1)[:, 29_990:30_010] = 200
    crop = Preprocessing().centre(image)
    assert crop.shape == (3, 224, 224)
    assert (crop == 200).all()


def test_other_sizes() -> None:
    crop = Preprocessing(size=16, resize=20).centre(noise(40, 60).permute(2, 0, 1))
    assert crop.shape == (3, 16, 16)


def test_folded_normalisation_is_the_one_documented() -> None:
    from chita import zoo

    wanted = zoo.get("mobilenetv1-folded").preprocessing
    assert wanted is not None
    pixels = torch.arange(256, dtype=torch.float32)
    normalised = (pixels / 255 - wanted.mean[0]) / wanted.std[0]
    assert torch.allclose(normalised, (pixels - 128) / 128, atol=1e-6)


def where(crop: torch.Tensor) -> tuple[int, int, int, int, bool]:
    """Left, right, top, bottom of a crop of `coordinates`, and whether it is mirrored."""
    columns, rows = crop[0, 0].float(), crop[1, :, 0].float()
    flipped = bool(columns[0] > columns[-1])
    return (
        int(columns.min()), int(columns.max()), int(rows.min()), int(rows.max()), flipped
    )  # fmt: skip


def coordinates(height: int, width: int) -> torch.Tensor:
    """An image whose channels are the column and the row, so that a crop shows where it is from."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack((columns, rows, rows)).to(torch.uint8)


def test_random_crops_have_the_areas_and_ratios_of_imagenet() -> None:
    images = coordinates(200, 250).expand(600, 3, 200, 250)
    crops = RandomResizedCrop(64)(images, torch.Generator().manual_seed(0))
    assert crops.shape == (600, 3, 64, 64)
    places = [where(crop) for crop in crops]
    widths = torch.tensor([right - left + 1.0 for left, right, *_ in places])
    heights = torch.tensor([bottom - top + 1.0 for _, _, top, bottom, _ in places])
    areas, ratios = widths * heights / (200 * 250), widths / heights
    assert 0.05 < areas.min() < 0.12
    assert 0.85 < areas.max() <= 1
    assert 0.4 < areas.mean() < 0.58  # evenly from 0.08 to 1, the largest often do not fit
    assert 0.72 < ratios.min() < 0.8
    assert 1.25 < ratios.max() < 1.4
    assert 0.42 < sum(flipped for *_, flipped in places) / 600 < 0.58
    lefts = torch.tensor([float(left) for left, *_ in places])
    rights = 249 - torch.tensor([float(right) for _, right, *_ in places])
    assert abs(lefts.mean() - rights.mean()) < 10  # as far from one edge as from the other


@pytest.mark.parametrize("shape", [(1, 1), (1, 200), (200, 1), (2, 250), (250, 30)])
def test_where_no_such_part_fits_the_middle_is_taken(shape: tuple[int, int]) -> None:
    images = coordinates(*shape)[None]
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        assert RandomResizedCrop(8)(images, generator).shape == (1, 3, 8, 8)
    left, right, *_ = where(RandomResizedCrop(8)(coordinates(2, 250)[None], generator)[0])
    assert 0 < left <= right < 249


def test_same_generator_same_crops() -> None:
    images = coordinates(100, 120).expand(5, 3, 100, 120)
    first, second, other = (
        RandomResizedCrop(32)(images, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])
