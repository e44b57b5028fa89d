"""The registry of methods."""

from __future__ import annotations

import re

import pytest

from chita import ChitaError
from chita.curvature import Fisher
from chita.methods import METHODS, get_method, methods_where
from chita.solver.solve import ALGORITHMS
from tests.support.messages import naming


def test_every_method_goes_by_its_name() -> None:
    assert {"magnitude", "chita-cd", "chita-bso", "chita++"} < METHODS.keys()
    assert {"obd", "obs", "woodfisher", "woodtaylor", "m-fac", "cbs"} < METHODS.keys()
    assert {"l-obs", "magnitude-uniform", "lamp"} < METHODS.keys()
    for name in METHODS:
        assert get_method(name) is METHODS[name]
        assert get_method(name).name == name


def test_only_chita_plus_plus_and_auto_have_many_stages_by_default() -> None:
    assert {name: method.stages for name, method in METHODS.items() if method.stages != 1} == {
        "chita++": 60,
        "auto": 60,
    }


def test_chita_alone_reads_its_matrix_piece_by_piece() -> None:
    assert {name for name, method in METHODS.items() if method.streams} == {
        "chita-bso", "chita-cd", "chita++", "auto", "chita-both",
    }  # fmt: skip
    assert not get_method("chita-both").shares_columns
    assert get_method("chita++", "cd").streams


@pytest.mark.parametrize("solver", ["bso", "cd"])
def test_the_solver_is_the_method_inside_chita_plus_plus(solver: str) -> None:
    method = get_method("chita++", solver)
    assert (method.name, method.stages, method.curvature) == ("chita++", 60, Fisher)
    assert method.algorithm == ALGORITHMS[solver]


def test_backsolve_is_the_default_solver() -> None:
    assert get_method("chita++") == get_method("chita++", "bso")


@pytest.mark.parametrize(
    ("name", "solver", "message"),
    [
        ("l1", None, naming("method", "'auto', 'cbs'", "magnitude", "l1")),
        ("chta", None, naming("method", "'chta'", re.compile("did you mean 'chita"))),
        ("l1", None, naming("method", "l1", without="did you mean")),
        ("chita++", "iht", naming("solver", ["bso", "cd"], "iht")),
        ("magnitude", "cd", naming("solver='cd'", "chita++", "magnitude")),
        ("chita-cd", "cd", naming("solver='cd'", "chita++", "chita-cd")),
    ],
)
def test_unknown_names(name: str, solver: str | None, message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        get_method(name, solver)


def test_methods_where_lists_names() -> None:
    assert (
        methods_where(lambda method: method.shares_columns) == "auto, chita++, chita-bso, chita-cd"
    )
    assert "obs" not in methods_where(lambda method: method.constrained).split(", ")
