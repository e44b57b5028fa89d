"""The place of rows: what is written where, and what has no place."""

from __future__ import annotations

import pytest
import torch

from chita.solver.matrix.in_memory import Demand, Place


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 2), (0, 3), (2, 5), (4, 6), (3, 7), (6, 9), (8, 9), (0, 10)]
)
def test_columns_outside_are_passed_over(start: int, stop: int) -> None:
    everything = torch.full((10, 2), -1.0)
    place = Place(everything[3:7].clone(), first=3)
    given = torch.arange(2.0 * (stop - start)).view(-1, 2)
    everything[start:stop] = given
    place.put(start, given)
    assert torch.equal(place.columns, everything[3:7])
    place.add(start, given)
    everything[start:stop] += given
    assert torch.equal(place.columns, everything[3:7])
    place.clear(start, stop)
    everything[start:stop] = 0
    assert torch.equal(place.columns, everything[3:7])


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_shows_if_it_has_a_place(wrong: float) -> None:
    columns = torch.zeros(4, 2)
    columns[1, 0] = wrong
    for first, finite in ((0, False), (2, True)):
        place = Place(torch.zeros(4, 2), first)
        place.put(0, columns)
        assert place.seems_finite == finite
    place = Place(torch.zeros(4, 2))
    place.put(0, torch.zeros(4, 2))
    place.add(0, columns)
    assert not place.seems_finite


def test_opposite_infinities_show_too() -> None:
    place = Place(torch.zeros(2, 1))
    place.put(0, torch.tensor([[torch.inf], [-torch.inf]]))
    assert not place.seems_finite


def test_bytes() -> None:
    demand = Demand(rows=10, columns=7, dtype=torch.float64, device=torch.device("cpu"))
    sizes = (demand.column_bytes, demand.vector_bytes, demand.matrix_bytes)
    assert sizes == (10 * 8, 7 * 8, 70 * 8)
