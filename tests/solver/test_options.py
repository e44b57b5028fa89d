from typing import Any

import numpy as np
import pytest

from chita.errors import ChitaError
from chita.solver.options import Options, Trace
from tests.support.messages import naming


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"iterations": -1}, naming("iterations", -1)),
        ({"iterations": 2.5}, naming("iterations", 2.5)),
        ({"t_ht": 0}, naming("t_ht", 0)),
        ({"t_cd": -1}, naming("t_cd", -1)),
        ({"block_sweeps": -1}, naming("block_sweeps", -1)),
        ({"gamma": 1.0}, naming("gamma", 1.0)),
        ({"gamma": float("nan")}, naming("gamma", "nan")),
        ({"gamma": "2"}, naming("gamma", "'2'")),
        ({"active": float("inf")}, naming("active", "inf")),
        ({"tol": None}, naming("tol", None)),
        ({"active": 0.5}, naming("active", 0.5)),
        ({"tol": 1.0}, naming("tol", 1.0)),
        ({"inner": "newton"}, naming("inner", "newton")),
        ({"step": "fixed"}, naming("step", "fixed")),
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
    with pytest.raises(ChitaError, match=naming("rounds")):
        Options.named({"rounds": 3})


def test_integers_of_numpy_are_integers() -> None:
    assert Options(iterations=np.int64(5)).iterations == 5  # type: ignore[arg-type]
