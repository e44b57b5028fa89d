from matplotlib.figure import Figure

from chita.paper.panels import draw_panels


def row(method: str, sparsity: float | str, loss: float) -> dict[str, object]:
    return {"method": method, "sparsity": sparsity, "loss": loss}


def test_a_method_has_the_same_colour_in_all_panels() -> None:
    rows = {
        "one": [row("a", 0.5, 1.0), row("b", 0.5, 2.0), row("b", "2:4", 3.0)],
        "two": [row("b", 0.5, 4.0)],
        "none": [],
    }
    one, two, none = draw_panels(Figure(), rows, y="loss")
    assert [axes.get_title() for axes in (one, two, none)] == list(rows)
    colours = [{line.get_label(): line[0].get_color() for line in axes.containers}
               for axes in (one, two)]  # fmt: skip
    assert colours[0]["b"] == colours[1]["b"] != colours[0]["a"]
    assert [text.get_text() for text in one.get_xticklabels()] == ["0.5", "2:4"]
    assert (one.get_xlabel(), one.get_ylabel()) == ("sparsity", "loss")
    assert not none.containers
