from chita.report.page.headline import before_and_after, beside_the_paper, facts_of
from chita.report.page.parts import point


def test_a_run_stands_beside_the_papers_points_and_its_dense_level() -> None:
    published = {"MP": [point(0.9, 80.0)], "CHITA": [point(0.9, 90.0), point(0.98, 60.0)]}
    chart = beside_the_paper({"dense_accuracy": 97.0}, [point(0.9, 91.0)], published, "text")
    assert [curve["name"] for curve in chart["series"]] == ["MP, paper", "CHITA, paper", "this run"]
    assert len({curve["colour"] for curve in chart["series"]}) == 3
    assert chart["levels"] == [{"name": "dense, this run", "y": 97.0}]
    assert chart["text"] == "text"


def test_facts_are_those_that_the_record_has() -> None:
    assert facts_of({}) == []
    record = {
        "accuracy": 94.85,
        "dense_accuracy": 96.88,
        "weights": 32360,
        "nonzeros": 1618,
        "held_out_loss": 0.16975,
        "held_out_error": 0.02377,
        "pattern": "2:4",
        "seconds": 2.6,
    }
    assert [(fact["label"], fact["value"], fact["note"]) for fact in facts_of(record)] == [
        ("test accuracy", "94.85 %", "dense: 96.88 % (-2.03 points)"),
        ("sparsity", "95.00 %", "1,618 of 32,360 weights kept"),
        ("held-out loss", "0.1698", "± 0.024"),
        ("pattern", "2:4", ""),
        ("time", "2.60 s", ""),
    ]


STATES = {"dense": "dense_{}", "pruned": "{}_before", "recovered": "{}"}


def test_before_and_after_need_two_scores() -> None:
    assert before_and_after({"dense_accuracy": None, "accuracy": 90.0}, STATES) is None
    chart = before_and_after({"dense_accuracy": 97.0, "accuracy": 95.0}, STATES)
    assert chart is not None
    assert chart["x"]["names"] == ["dense", "recovered"]
    assert chart["y"]["form"] == "percent"
    assert [(p["x"], p["y"]) for p in chart["series"][0]["points"]] == [(0, 97.0), (1, 95.0)]


def test_without_accuracies_the_test_losses_are_shown() -> None:
    record = {
        "accuracy": None,
        "dense_test_loss": 0.5,
        "test_loss_before": 0.75,
        "test_loss": 0.625,
    }
    chart = before_and_after(record, STATES)
    assert chart is not None
    assert (chart["y"]["label"], chart["y"]["form"]) == ("test loss", "number")
    assert [point["y"] for point in chart["series"][0]["points"]] == [0.5, 0.75, 0.625]
    (fact,) = facts_of(record)
    assert (fact["label"], fact["value"], fact["note"]) == ("test loss", "0.625", "dense: 0.5")
