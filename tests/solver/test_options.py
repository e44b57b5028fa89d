from typing import Any

import numpy as np
import pytest

from chita.errors import ChitaError
from chita.solver.options import Options, Trace


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"iterations": -1}, "iterations must be an integer of at least 0, got -1"),
        ({"iterations": 2.5}, "iterations must be an integer .* got 2.5"),
        ({"t_ht": 0}, "t_ht must be an integer of at least 1, got 0"),
        ({"t_cd": -1}, "t_cd must be an integer of at least 0, got -1"),
        ({"block_sweeps": -1}, "block_sweeps must be an integer of at least 0, got -1"),
        ({"gamma": 1.0}, "gamma must be greater than 1, got 1.0"),
        ({"gamma": float("nan")}, "gamma must be greater than 1, got nan"),
        ({"gamma": "2"}, "gamma must be a finite number, got '2'"),
        ({"active": float("inf")}, "active must be a finite number, got inf"),
        ({"tol": None}, "tol must be a finite number, got None"),
        ({"active": 0.5}, "active must be at least 1 .* got 0.5"),
        ({"tol": 1.0}, r"tol must be in \[0, 1\), got 1.0"),
        ({"inner": "newton"}, "inner must be one of .* got 'newton'"),
        ({"step": "fixed"}, "step must be one of .* got 'fixed'"),
    ],
)
def test_errors_name_the_option(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        Options(**wrong)


def test_the_extremes_are_fine() -> None:
    assert Options(iterations=0, t_ht=1, t_cd=0, active=0, tol=0.0).active == 0


def test_a_trace_is_spent_at_its_limit() -> None:
    trace = Trace(2)
    assert not trace.spent
    trace.iterations = 2
    assert trace.spent


def test_unknown_names_are_told() -> None:
    assert Options.named({"iterations": 7, "step": "lipschitz"}).iterations == 7
    with pytest.raises(ChitaError, match="'rounds' is not an option"):
        Options.named({"rounds": 3})


def test_integers_of_numpy_are_integers() -> None:
    assert Options(iterations=np.int64(5)).iterations == 5  # type: ignore[arg-type]
