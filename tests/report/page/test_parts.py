from typing import Any

import pytest

from chita.report.page.parts import number, show, table


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("sparsity", 0.9503, "95.03%"),
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
def test_values_are_written_as_in_our_tables(name: str, value: Any, text: str) -> None:
    assert show(name, value) == text


def test_a_table_has_every_column_of_any_row() -> None:
    made = table("t", [{"a": 1}, {"a": 2, "choice": "x"}])
    assert made["columns"] == ["a", "choice"]
    assert made["rows"] == [["1", "-"], ["2", "x"]]


def test_only_finite_numbers_are_figures() -> None:
    row = {"a": 1, "b": 2.5, "c": True, "d": "3", "e": None, "f": float("nan"), "g": float("inf")}
    assert {name for name in (*row, "h") if number(row, name) is not None} == {"a", "b"}
