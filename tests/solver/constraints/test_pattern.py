import pytest
import torch

from chita.errors import ChitaError
from chita.solver.constraints.n_of_m import Groups
from chita.solver.constraints.pattern import NM, TileShape, first_cut, parse_pattern, read_sparsity
from chita.solver.constraints.tiles import Tiles
from tests.support.messages import naming


def test_names() -> None:
    assert parse_pattern("2:4") == NM(2, 4)
    assert parse_pattern("31:32") == NM(31, 32)
    assert parse_pattern("4x1") == TileShape(4, 1)
    assert NM(1, 4).sparsity == 0.75


@pytest.mark.parametrize("name", ["4:4", "0:4", "1:33", "2:", "1x1", "0x4", "2;4", "", "a:b", 2])
def test_names_that_make_no_sense(name: str) -> None:
    with pytest.raises(ChitaError, match=naming("pattern", repr(name))):
        parse_pattern(name)


def test_a_sparsity_may_be_a_pattern() -> None:
    assert read_sparsity("2:4", None) == (0.5, "2:4")
    assert read_sparsity("2:4", "2:4") == (0.5, "2:4")
    assert read_sparsity(0.3, "2:4") == (0.3, "2:4")
    assert read_sparsity(0.3, None) == (0.3, None)
    with pytest.raises(ChitaError, match=naming("2:4", "1:4")):
        read_sparsity("2:4", "1:4")


def test_groups_of_n_to_m_are_neighbours_along_the_inputs() -> None:
    matrix = torch.arange(16).view(2, 8)
    assert NM(2, 4).cut(matrix).tolist() == torch.arange(16).view(4, 4).tolist()
    assert NM(2, 4).fits(3, 8)
    assert not NM(2, 4).fits(4, 6)


def test_tiles_are_rectangles() -> None:
    matrix = torch.arange(24).view(4, 6)
    tiles = TileShape(2, 3).cut(matrix)
    assert tiles.tolist() == [
        [0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11], [12, 13, 14, 18, 19, 20],
        [15, 16, 17, 21, 22, 23],
    ]  # fmt: skip
    assert TileShape(4, 1).fits(8, 5)
    assert not TileShape(4, 1).fits(6, 5)


def test_what_is_kept_of_p_weights() -> None:
    assert NM(2, 4).kept(40, 30) == 30
    assert NM(2, 4).kept(40, 20) == 20
    assert NM(1, 3).kept(30, 9) == 10  # floor((1 - 2/3) 30) is 9 in floating point, or 10
    assert TileShape(4, 1).kept(40, 30) == 28


def test_constraints() -> None:
    ids = torch.arange(8) // 4
    groups = NM(3, 4).constraint(ids)
    assert isinstance(groups, Groups)
    assert (groups.least.tolist(), groups.most.tolist()) == ([3, 3], [4, 4])
    assert isinstance(TileShape(4, 1).constraint(ids), Tiles)


@pytest.mark.parametrize(
    ("ids", "columns"),
    [
        ([[0, 1, 2]], 1),
        ([[0, 0, 1, 1]], 2),
        ([[0, 1, 0, 2]], 3),
        ([[0, 1, 1], [0, 2, 2]], 1),
        ([[0, 0, 1], [2, 1, 1]], 3),  # the cut after each column separates group 0 or 1
    ],
)
def test_the_first_cut_separates_no_group(ids: list[list[int]], columns: int) -> None:
    assert first_cut(torch.tensor(ids)) == columns
