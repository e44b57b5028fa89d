from chita.report.page.parts import number, pairs, table


def test_a_table_has_every_column_with_a_value() -> None:
    made = table("t", [{"a": 1, "never": None}, {"a": 2, "choice": "x"}])
    assert made["columns"] == ["a", "choice"]
    assert made["rows"] == [["1", "-"], ["2", "x"]]


def test_pairs_name_nested_values_in_full() -> None:
    made = pairs("t", {"a": 1, "b": {"sparsity": 0.5, "c": {}}})
    assert made["rows"] == [["a", "1"], ["b.sparsity", "50.00 %"], ["b.c", ""]]


def test_only_finite_numbers_are_figures() -> None:
    row = {"a": 1, "b": 2.5, "c": True, "d": "3", "e": None, "f": float("nan"), "g": float("inf")}
    assert {name for name in (*row, "h") if number(row, name) is not None} == {"a", "b"}
