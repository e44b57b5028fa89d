"""Values that arguments may have, among them those that look like others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from chita import ChitaError
from chita import errors as may
from tests.support.messages import naming


@pytest.mark.parametrize(
    ("holds", "good", "bad"),
    [
        (may.is_share, [0, 0.5, np.float32(0.9)], [1, -0.1, math.nan, True, "0.5", None]),
        (may.is_percentage, [95, 1.5, 100], [0.95, 1, 101, math.nan, True, "95"]),
        (may.is_not_negative, [0, 2.5, np.int64(3)], [-1, math.inf, math.nan, False, "1"]),
        (may.is_natural, [0, 7, np.int32(2)], [-1, 1.0, True, "1"]),
        (may.is_count, [1, 7], [0, -1, 1.0, True]),
        (may.is_seed, [0, 2**64 - 1], [2**64, -1, 0.5]),
        (may.are_patterns, [None, "fc*", ["a", "b"], ()], [1, [1], {"a": 1}]),
        (may.are_shares, [{}, {"fc*": 0.5}], [{"fc*": 1}, {1: 0.5}, [("fc*", 0.5)]]),
    ],
)
def test_what_holds(holds: Callable[[Any], bool], good: list[Any], bad: list[Any]) -> None:
    assert all(holds(value) for value in good)
    assert not any(holds(value) for value in bad)


def test_a_refusal_says_what_was_given_and_what_would_do() -> None:
    may.require("stages", 3, may.is_count, "an integer")
    with pytest.raises(ChitaError, match=naming("stages", "an integer of at least 1", 0)):
        may.require("stages", 0, may.is_count, "an integer of at least 1")
