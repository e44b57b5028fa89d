from typing import Any

import pytest

from chita.report.page.text import format_duration, format_size, format_value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("sparsity", 0.9503, "95.03 %"),
        ("sparsity", 95.03, "95.03"),  # the gradual table's is in percent
        ("accuracy", 94.125, "94.12"),
        ("objective", 2.41289, "2.413"),
        ("ridge", 0.00316, "0.0032"),
        ("solve_seconds", 1.005, "1.00"),
        ("kept", 31360, "31,360"),
        ("converged", True, "yes"),
        ("loss", None, "-"),
        ("shape", [16, 3, 3], "16 x 3 x 3"),
        ("include", ["a", "b"], "a, b"),
        ("candidates", [{"k": 1, "loss": 0.5}, {"k": 2}], "k: 1, loss: 0.5; k: 2"),
        ("why", "held-out loss", "held-out loss"),
    ],
)
def test_values_are_written_by_the_name_of_their_column(name: str, value: Any, text: str) -> None:
    assert format_value(name, value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0123, "12 ms"),
        (2.634, "2.63 s"),
        (99.94, "99.9 s"),
        (599.4, "599 s"),
        (601, "10 min 1 s"),
        (7200, "2 h 0 min"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_times_beside_a_long_one_are_in_minutes() -> None:
    assert [format_duration(seconds, 600) for seconds in (5, 59, 60)] == [
        "5.00 s",
        "59.0 s",
        "1 min 0 s",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (10_517, "10.5 kB"),
        (542e6, "542.0 MB"),
        (3e12, "3,000.0 GB"),
    ],
)
def test_sizes(count: float, text: str) -> None:
    assert format_size(count) == text
