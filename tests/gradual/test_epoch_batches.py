from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from chita.data import Batches, ImageData, Preprocessing, image_folder
from chita.data.preprocessing import pad_crop_flip
from chita.errors import ChitaError
from chita.gradual.epoch_batches import Feed
from chita.model.seeds import drawing, seed_of
from chita.solver.ranks import Ranks
from tests.support.messages import naming

CPU = torch.device("cpu")
COUNT = 23


class OneOfTwo(Ranks):
    size = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank


def numbered(count: int = COUNT) -> ImageData:
    """Images that all differ: each is filled with its number, which is also its label."""
    labels = torch.arange(count)
    images = labels.to(torch.uint8)[:, None, None, None].expand(-1, 1, 6, 6).contiguous()
    return ImageData(images, labels, (0.5,), (0.25,))


def labels_of(batches: list[tuple[Tensor, Tensor]]) -> list[int]:
    return torch.cat([labels for _, labels in batches]).tolist()


def feed(batch_size: int = 4, *, seed: int = 0, rank: Ranks | None = None) -> Feed:
    ranks = rank or Ranks()
    return Feed(numbered(), batch_size, augment=None, seed=seed, device=CPU, ranks=ranks)


def test_an_epoch_has_whole_batches_of_different_images() -> None:
    batches = list(feed().epoch(0))
    assert len(batches) == len(feed()) == 5
    assert {len(labels) for _, labels in batches} == {4}
    assert len(set(labels_of(batches))) == 20
    for images, labels in batches:
        assert images.dtype == torch.uint8
        assert torch.equal(images[:, 0, 2, 2].long(), labels)


def test_an_epoch_depends_on_the_seed_and_its_number_alone() -> None:
    one = feed()
    for epoch in (2, 0, 1):
        list(one.epoch(epoch))
    orders = [labels_of(list(feed().epoch(epoch))) for epoch in range(3)]
    assert labels_of(list(one.epoch(1))) == orders[1]
    orders += [labels_of(list(feed(seed=1).epoch(epoch))) for epoch in range(3)]
    assert len(set(map(tuple, orders))) == 6


def test_augmentation_is_that_of_the_epoch_at_once() -> None:
    def augmented(epoch: int) -> Tensor:
        shifted = Feed(numbered(), 4, augment=pad_crop_flip, seed=0, device=CPU)
        return torch.cat([images for images, _ in shifted.epoch(epoch)])

    assert torch.equal(augmented(0), augmented(0))
    blank = [(image == 0).any().item() for image in augmented(0)]  # shifted in from outside
    assert 10 <= sum(blank) <= 20
    assert not torch.equal(augmented(0) == 0, augmented(1) == 0)


def test_ranks_share_each_batch() -> None:
    alone = [labels.tolist() for _, labels in feed().epoch(3)]
    parts = [
        [labels.tolist() for _, labels in feed(rank=OneOfTwo(rank)).epoch(3)] for rank in (0, 1)
    ]
    assert [one + other for one, other in zip(*parts, strict=True)] == alone


def test_ranks_augment_each_in_its_own_way() -> None:
    same = ImageData(
        torch.full((8, 1, 6, 6), 9, dtype=torch.uint8), torch.zeros(8).long(), (0,), (1,)
    )
    seen = [
        torch.cat([
            images
            for images, _ in Feed(
                same, 8, augment=pad_crop_flip, seed=0, device=CPU, ranks=OneOfTwo(rank)
            ).epoch(0)
        ])
        for rank in (0, 1)
    ]  # fmt: skip
    assert not torch.equal(*seen)


def test_calibration_comes_again_in_the_same_order_and_changes_with_the_epoch() -> None:
    calibration = feed().calibration(5)
    first, again = list(calibration), list(calibration)
    assert labels_of(first) == labels_of(again) != labels_of(list(feed().calibration(6)))
    assert sorted(labels_of(first)) == list(range(COUNT))
    truth = dict(zip(range(COUNT), torch.cat([i for i, _ in Batches(numbered(), 4)]), strict=True))
    for images, labels in first:  # normalised, not augmented
        for image, label in zip(images, labels.tolist(), strict=True):
            assert torch.equal(image, truth[label])


def test_calibration_is_the_same_on_all_ranks() -> None:
    seen = [labels_of(list(feed(rank=OneOfTwo(rank)).calibration(1))) for rank in (0, 1)]
    assert seen[0] == seen[1] == labels_of(list(feed().calibration(1)))


def test_image_files_are_read_batch_by_batch(tmp_path: Path) -> None:
    pictures = pytest.importorskip("tests.data.pictures", reason="pictures need pillow")
    for part in ("train", "val"):
        pictures.save_classes(tmp_path / part, classes=2, each=5)
    splits = image_folder(tmp_path, Preprocessing(size=8, resize=8), workers=0)
    from_files = Feed(splits.train, 4, augment=None, seed=0, device=CPU)
    batches = list(from_files.epoch(0))
    assert [tuple(images.shape) for images, _ in batches] == [(4, 3, 8, 8)] * 2
    again = list(from_files.epoch(0))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(batches, again, strict=True))


def test_a_batch_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ChitaError, match=naming("batch_size", 23, 24)):
        feed(24)
    with pytest.raises(ChitaError, match=naming("batch_size", "ranks", 2, 3)):
        feed(3, rank=OneOfTwo(0))


def test_layers_draw_from_the_seed_and_the_callers_generator_is_left_alone() -> None:
    dropout, ones = nn.Dropout(0.5), torch.ones(64)

    def draw(seed: int) -> Tensor:
        with drawing(seed, CPU):
            return dropout(ones)

    before = torch.get_rng_state()
    first = draw(1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(draw(1), first)
    assert not torch.equal(draw(2), first)


def test_seeds_differ() -> None:
    keys = [(seed, epoch, rank) for seed in range(5) for epoch in range(20) for rank in range(3)]
    assert len({seed_of(*key) for key in keys}) == len(keys)
