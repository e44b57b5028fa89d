import pytest
import torch

from chita import ChitaError
from chita.data.dataset import Batches, ImageData
from chita.data.preprocessing import pad_crop_flip
from tests.support.messages import naming


@pytest.fixture
def data() -> ImageData:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (10, 3, 8, 8), dtype=torch.uint8, generator=generator)
    return ImageData(images, torch.arange(10), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))


def labels(batches: Batches) -> list[int]:
    return [int(label) for _, targets in batches for label in targets]


def test_batches_are_normalised_and_in_order(data: ImageData) -> None:
    batches = Batches(data, 4)
    assert len(batches) == 3
    sizes = []
    for inputs, targets in batches:
        sizes.append(len(targets))
        assert inputs.dtype == torch.float32
        for image, label in zip(inputs, targets, strict=True):
            for channel in range(3):
                expected = (data.images[label, channel] / 255 - data.mean[channel]) / data.std[
                    channel
                ]
                assert torch.allclose(image[channel], expected)
    assert sizes == [4, 4, 2]
    assert labels(batches) == list(range(10)) == labels(batches)


def test_shuffled_orders_differ_and_repeat_from_the_seed(data: ImageData) -> None:
    batches = Batches(data, 4, shuffle=True, seed=7)
    first, second = labels(batches), labels(batches)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    again = Batches(data, 4, shuffle=True, seed=7)
    next(iter(again))  # an iteration broken off counts as one, and changes nothing for the next
    assert labels(again) == second
    assert labels(Batches(data, 4, shuffle=True, seed=8)) != first


def test_batches_leave_the_global_generator_alone(data: ImageData) -> None:
    before = torch.get_rng_state()
    list(Batches(data, 4, shuffle=True, augment=pad_crop_flip))
    assert torch.equal(torch.get_rng_state(), before)


def test_augmentation_comes_before_normalisation(data: ImageData) -> None:
    batches = Batches(data, 10, augment=lambda images, generator: torch.zeros_like(images))
    inputs, _ = next(iter(batches))
    black = -torch.tensor(data.mean) / torch.tensor(data.std)
    assert torch.allclose(inputs, black[:, None, None].expand(10, 3, 8, 8))


def test_augmentation_is_new_each_time_and_repeats_from_the_seed(data: ImageData) -> None:
    def two_iterations() -> list[torch.Tensor]:
        batches = Batches(data, 10, augment=pad_crop_flip, seed=1)
        return [inputs for _ in range(2) for inputs, _ in batches]

    first, second = two_iterations()
    assert not torch.equal(first, second)
    assert all(map(torch.equal, two_iterations(), (first, second)))


def test_limit_takes_the_first_of_the_order(data: ImageData) -> None:
    limited = Batches(data, 4, limit=5)
    assert len(limited) == 2
    assert labels(limited) == [0, 1, 2, 3, 4]
    shuffled = Batches(data, 4, limit=5, shuffle=True, seed=7)
    assert labels(shuffled) == labels(Batches(data, 4, shuffle=True, seed=7))[:5]
    assert labels(Batches(data, 4, limit=99)) == list(range(10))


def test_bad_arguments(data: ImageData) -> None:
    with pytest.raises(ChitaError, match=naming("batch_size", 0)):
        Batches(data, 0)
    with pytest.raises(ChitaError, match=naming("limit", -1)):
        Batches(data, 1, limit=-1)
    with pytest.raises(ChitaError, match=naming("images", "uint8", torch.float32)):
        ImageData(data.images.float(), data.labels, mean=data.mean, std=data.std)
    with pytest.raises(ChitaError, match=naming("images", "(0, 3, 8, 8)")):
        ImageData(data.images[:0], data.labels[:0], mean=data.mean, std=data.std)
    with pytest.raises(ChitaError, match=naming("labels", 10, "(9,)")):
        ImageData(data.images, data.labels[:9], mean=data.mean, std=data.std)
