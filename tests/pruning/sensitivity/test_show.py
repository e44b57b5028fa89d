from dataclasses import replace
from pathlib import Path

from PIL import Image

from chita.pruning.sensitivity.result import sensitivity_table
from chita.pruning.sensitivity.show import draw_sensitivity
from chita.report.tables import as_text
from tests.pruning.sensitivity.curves import curves
from tests.support.messages import says

FOUND = curves([(1000, (1.0, 1.25, 1.5, 2.0)), (20, (1.0, 1.1, 3.0, 9.0))])


def test_the_table_has_every_loss() -> None:
    lines = as_text(sensitivity_table(FOUND), width=79).splitlines()
    assert says(" ".join(" ".join(lines).split()), "dense", 1, "75.00 %")
    (a,) = [line.split() for line in lines if line.strip().startswith("a ")]
    (b,) = [line.split() for line in lines if line.strip().startswith("b ")]
    assert a == ["a", "1,000", "1", "1.25", "1.5", "2"]
    assert b == ["b", "20", "1", "1.1", "3", "9"]


def test_the_figure_grows_with_the_layers(tmp_path: Path) -> None:
    draw_sensitivity(tmp_path / "few.png", FOUND, title="few")
    many = curves([(10, (1.0, 1.0, 1.0, 1.0))] * 6)
    many = replace(many, layers=many.layers * 10)
    draw_sensitivity(tmp_path / "many.png", many, title="many")
    few, tall = Image.open(tmp_path / "few.png"), Image.open(tmp_path / "many.png")
    assert few.width == tall.width
    assert tall.height > 2 * few.height
    assert len(few.convert("RGB").getcolors(1 << 20) or ()) > 3
