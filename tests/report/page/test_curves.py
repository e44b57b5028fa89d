from chita.report.page.curves import by_number
from chita.report.page.parts import axis


def test_figures_in_turn_without_those_that_are_missing() -> None:
    rows = [{"stage": 3, "loss": 2.0, "held": 1.0}, {"loss": 0.0, "held": None}, {"loss": -1.0}]
    columns = {"loss": "the loss", "held": "held out"}

    def chart(*, log: bool) -> list[tuple[str, list[tuple[float, float]]]]:
        y = axis("y", log=log)
        found = by_number("A", y, rows, columns, what="stage", note=lambda row: str(len(row)))
        assert found["x"]["label"] == "stage"
        assert found["series"][0]["points"][0]["note"] == "3"
        return [
            (curve["name"], [(p["x"], p["y"]) for p in curve["points"]])
            for curve in found["series"]
        ]

    assert chart(log=False) == [
        ("the loss", [(3, 2.0), (2, 0.0), (3, -1.0)]),
        ("held out", [(3, 1.0)]),
    ]
    assert chart(log=True) == [("the loss", [(3, 2.0)]), ("held out", [(3, 1.0)])]
