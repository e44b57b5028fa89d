import pytest

from chita.paper.average import average, near_best, standard_error


def test_standard_error_is_that_of_the_mean() -> None:
    assert standard_error([1.0, 2.0, 3.0, 4.0]) == pytest.approx((5 / 3) ** 0.5 / 2)
    assert standard_error([1.0]) is None
    assert standard_error([]) is None


def test_means_within_two_errors_of_the_difference_are_near_the_best() -> None:
    assert near_best([90.0, 89.5, 89.4], [0.2, 0.15, 0.15]) == [True, True, False]
    assert near_best([80.0, 90.0], [0.1, 0.1]) == [False, True]
    assert near_best([90.0, 89.9], [None, 0.1]) == [None, None]  # nothing is known of the best
    assert near_best([90.0, 89.9], [0.1, None]) == [True, None]


def test_all_fields_but_those_named_are_averaged_over() -> None:
    records = [
        {"key": {"m": m, "alpha": alpha, "seed": seed}, "accuracy": 10.0 * m + seed}
        for m in (1, 2)
        for alpha in ("0", "1")
        for seed in (0, 2)
    ]
    rows = average(records, ("m",), "accuracy")
    assert [(row["m"], row["accuracy"]) for row in rows] == [(1, 11.0), (2, 21.0)]
    assert rows[0]["standard_error"] == pytest.approx((4 / 3) ** 0.5 / 2)
