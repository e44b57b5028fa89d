from itertools import product
from typing import Any

import pytest

from chita.errors import ChitaError
from chita.paper.cells import Cell
from chita.paper.selection import select_cells
from tests.support.messages import naming


def cell(**key: Any) -> Cell:
    return Cell({"bench": "it", **key}, dict)


CELLS = [
    cell(network=network, sparsity=sparsity, seed=seed, arguments={"method": "auto"})
    for network, sparsity, seed in product(("mlpnet", "resnet20"), (0.9, 1, "2:4"), (0, 1))
]


def selected(*only: str) -> set[tuple[Any, ...]]:
    found = select_cells(CELLS, only)
    return {tuple(each.key[name] for name in ("network", "sparsity", "seed")) for each in found}


def test_without_a_text_all_cells_are_selected() -> None:
    assert select_cells(CELLS, []) == CELLS


def test_texts_of_different_fields_are_all_required() -> None:
    assert selected("resnet20", "0.9") == {("resnet20", 0.9, 0), ("resnet20", 0.9, 1)}
    assert selected("resnet20", "2:4", "0") == {("resnet20", "2:4", 0)}


def test_texts_of_one_field_are_alternatives() -> None:
    assert selected("0.9", "mlpnet", "2:4") == {
        ("mlpnet", sparsity, seed) for sparsity in (0.9, "2:4") for seed in (0, 1)
    }
    assert selected("mlpnet", "resnet20") == selected()


def test_a_text_may_be_a_value_of_several_fields() -> None:
    assert selected("mlpnet", "1") == {
        ("mlpnet", 1, 0), ("mlpnet", 0.9, 1), ("mlpnet", 1, 1), ("mlpnet", "2:4", 1)
    }  # fmt: skip


def test_a_version_is_not_selected_by_its_number() -> None:
    """A seed with the same number is."""
    cells = [cell(seed=seed, recovery_version=2, version=2) for seed in (0, 1, 2)]
    assert select_cells(cells, ["2"]) == [cells[2]]


def test_a_text_that_matches_no_cell_is_named_with_those_that_do() -> None:
    known = naming("--only", "resnet", "network mlpnet, resnet20", "2:4", without="auto")
    for texts in (["resnet"], ["mlpnet", "resnet"]):
        with pytest.raises(ChitaError, match=known):
            select_cells(CELLS, texts)


def test_texts_that_match_no_cell_together_are_named() -> None:
    """Values with spaces have quotes."""
    cells = [cell(network="mlpnet", sparsity=0.9), cell(network="my net", sparsity=0.8)]
    with pytest.raises(
        ChitaError, match=naming("0.8", "network mlpnet, 'my net'", "sparsity 0.9, 0.8")
    ):
        select_cells(cells, ["mlpnet", "0.8"])
    with pytest.raises(ChitaError, match=naming("my net", "network mlpnet")):
        select_cells(cells[:1], ["my net"])
