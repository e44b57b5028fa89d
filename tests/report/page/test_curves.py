from chita.report.page.curves import accuracy_section, by_number
from chita.report.page.parts import axis, point
from tests.support.messages import says


def test_a_run_stands_beside_the_papers_points_and_its_dense_level() -> None:
    published = {"MP": [point(0.9, 80.0)], "CHITA": [point(0.9, 90.0), point(0.98, 60.0)]}
    found = accuracy_section("A", {"dense_accuracy": 97.0}, [point(0.9, 91.0)], published, "text")
    (chart,) = found["charts"]
    assert [curve["name"] for curve in chart["series"]] == ["MP, paper", "CHITA, paper", "this run"]
    assert len({curve["colour"] for curve in chart["series"]}) == 3
    assert chart["levels"] == [{"name": "dense, this run", "y": 97.0}]
    assert found["text"] == "text"


def test_a_network_that_the_paper_has_not() -> None:
    found = accuracy_section("A", {}, [point(0.9, 91.0)], {}, "text")
    (chart,) = found["charts"]
    assert [curve["name"] for curve in chart["series"]] == ["this run"]
    assert chart["levels"] == []
    assert says(found["text"], "paper")


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
