"""Fingerprints of data: any other sample gives another, any other order of a loader the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

from chita.data import Batches
from chita.data.dataset import ImageData
from chita.model.samples import fingerprint as module
from chita.model.samples.stream import SampleStream
from tests.support.pruning import Again, cut, points


def changed(at: int = 40, what: int = 0) -> tuple[Tensor, Tensor]:
    """41 points, of which one input or target differs in its last bits."""
    pair = points(41)
    pair[what][at] += 1
    return pair


class Indexed(Dataset[tuple[Tensor, Tensor]]):
    """A data set that is not a TensorDataset; with noise, each read gives another sample."""

    def __init__(self, pair: tuple[Tensor, Tensor], noise: bool = False) -> None:
        self.pair, self.noise = pair, noise

    def __len__(self) -> int:
        return len(self.pair[0])

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        extra = torch.rand(()) if self.noise else 0.0
        return self.pair[0][index] + extra, self.pair[1][index]


def of(batches: Any) -> str | None:
    return SampleStream(batches, seed=3).fingerprint()


def images(pair: tuple[Tensor, Tensor]) -> ImageData:
    pixels = (pair[0][:, :, None, None] * 40).to(torch.uint8)
    return ImageData(pixels, pair[1], (0.5,) * 6, (1.0,) * 6)


KINDS = {
    "list": lambda pair: cut(pair, 7),
    "tensors": lambda pair: DataLoader(TensorDataset(*pair), 7, shuffle=True, drop_last=True),
    "indexed": lambda pair: DataLoader(Indexed(pair), 7, shuffle=True),
    "drawn batches": lambda pair: DataLoader(
        Indexed(pair), batch_sampler=BatchSampler(RandomSampler(pair[0]), 7, False)
    ),
    "images": lambda pair: Batches(images(pair), 7),
    "shuffled images": lambda pair: Batches(images(pair), 7, shuffle=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_and_target_counts(kind: str) -> None:
    make = KINDS[kind]
    own = of(make(points(41)))
    assert own is not None and own == of(make(points(41)))
    for at in (0, 20, 40):  # not only in the first batch
        for what in (0, 1):
            assert of(make(changed(at, what))) != own
    assert of(make(points(40))) != own


def test_reading_takes_no_random_numbers() -> None:
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(Indexed(points(41)), 7, shuffle=True, generator=generator)
    states = [torch.get_rng_state(), generator.get_state()]
    of(loader)
    assert torch.equal(states[0], torch.get_rng_state())
    assert torch.equal(states[1], generator.get_state())


def test_other_iterables_count_once_they_are_known_to_repeat() -> None:
    def held_out(batches: Any) -> str | None:
        stream = SampleStream(batches, seed=3)
        stream.hold_out((5,), 7, rest=20)
        return stream.fingerprint()

    assert of(Again(cut(points(41), 7))) is None
    own = held_out(Again(cut(points(41), 7)))
    assert own is not None and own == held_out(Again(cut(points(41), 7)))
    assert own != held_out(Again(cut(changed(), 7)))


def test_samples_that_differ_in_each_pass_have_none() -> None:
    with torch.random.fork_rng():
        assert of(DataLoader(Indexed(points(41), noise=True), 7)) is None


def test_a_large_data_set_is_read_at_equal_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_COMPARED", 11)
    read: list[int] = []

    class Counted(Indexed):
        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            read.append(index)
            return super().__getitem__(index)

    module.loader_fingerprint(DataLoader(Counted(points(41)), 4, shuffle=True))
    assert read == [0, 4, 8, 12] * 2 + list(range(0, 41, 4))  # the first batch three times


def test_names_types_and_shapes_count() -> None:
    tensor = torch.arange(6.0)
    found = {
        module.fingerprint([("a", tensor)]),
        module.fingerprint([("b", tensor)]),
        module.fingerprint([("a", tensor.view(2, 3))]),
        module.fingerprint([("a", tensor.view(torch.int32))]),
    }
    assert len(found) == 4
