import math

from chita.files.finite import finite_or_none


def test_only_finite_numbers_stay() -> None:
    assert finite_or_none(-1.5) == -1.5
    assert [finite_or_none(x) for x in (math.inf, -math.inf, math.nan)] == [None] * 3
