"""Data that cannot be a stream of samples."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from chita.errors import ChitaError
from chita.model.samples.stream import SampleStream
from tests.support.messages import naming
from tests.support.numbered import numbered


def test_one_shot_iterators_are_refused() -> None:
    with pytest.raises(ChitaError, match=naming("batches", "generator", "list", "DataLoader")):
        SampleStream(batch for batch in numbered([2]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.zeros(2), naming("batch 1", "(inputs, targets)", "tensor", "(2,)")),
        (
            (torch.zeros(2), torch.zeros(2), torch.zeros(2)),
            naming("batch 1", "(inputs, targets)", "tuple", 3),
        ),
        ((torch.zeros(2, 3), torch.zeros(4)), naming("batch 1", "(2, 3), (4,)")),
        (([torch.zeros(2), torch.zeros(3)], torch.zeros(2)), naming("batch 1", "(2,), (3,), (2,)")),
        ((torch.zeros(1, 2), torch.tensor(1.0)), naming("batch 1", "(1, 2), ()")),
        ((torch.zeros(1, 2), 3), naming("batch 1", "targets", "int")),
        (({"text": "a"}), naming("batch 1", "tensor")),
        ({"a": torch.zeros(2), "b": torch.zeros(3)}, naming("batch 1", "(2,), (3,)")),
        (None, naming("batch 1", "(inputs, targets)", "NoneType")),
    ],
)
def test_bad_batches_are_named(given: object, message: str) -> None:
    batches = [(torch.zeros(2, 1), torch.zeros(2)), given]
    with pytest.raises(ChitaError, match=message):
        SampleStream(batches).count(100)
    with pytest.raises(ChitaError, match=message):
        list(SampleStream(batches).take(4, 1))


def test_not_iterable_at_all() -> None:
    with pytest.raises(ChitaError, match=naming("batches", "DataLoader", "int")):
        SampleStream(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("batches", [[], [(torch.zeros(0, 2), torch.zeros(0))]])
def test_no_samples(batches: list[object]) -> None:
    with pytest.raises(ChitaError, match=naming("batches", "samples")):
        SampleStream(batches).count(5)
    with pytest.raises(ChitaError, match=naming("batches", "samples")):
        list(SampleStream(batches).take(1, 1))


class OnlyOnce:
    """Iterable, but empty from the second time on."""

    def __init__(self) -> None:
        self.fresh = True

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if self.fresh:
            self.fresh = False
            yield torch.zeros(2, 1), torch.zeros(2)


def test_data_that_dry_up() -> None:
    with pytest.raises(ChitaError, match=naming("batches", "samples")):
        list(SampleStream(OnlyOnce()).take(3, 1))


@pytest.mark.parametrize(
    "other",
    [
        (torch.zeros(1, 3), torch.zeros(1)),
        {"inputs": torch.zeros(1, 2)},
        ((torch.zeros(1, 2), torch.zeros(1, 2)), torch.zeros(1)),
    ],
)
def test_samples_that_do_not_fit_together(other: object) -> None:
    with pytest.raises(ChitaError, match=naming("batches", "samples", "shape")):
        list(SampleStream([(torch.zeros(1, 2), torch.zeros(1)), other]).take(2, 2, unit=2))
