import json
from pathlib import Path

import pytest
from PIL import Image

from chita.paper import demo
from tests.support.messages import says

pytestmark = pytest.mark.slow


def test_the_demo_writes_figure_points_and_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "SPARSITIES", (0.9, 0.98))
    columns = {name: demo.COLUMNS[name] for name in ("magnitude", "CHITA")}
    monkeypatch.setattr(demo, "COLUMNS", columns)
    demo.run_demo(tmp_path)
    text = capsys.readouterr().out
    assert "magnitude" in text
    assert "CHITA" in text
    assert "98%" in text
    rows = json.loads((tmp_path / "demo.json").read_text())["rows"]
    assert [(row["method"], row["sparsity"]) for row in rows] == [
        ("magnitude", 0.9),
        ("magnitude", 0.98),
        ("chita-bso", 0.9),
        ("chita-bso", 0.98),
    ]
    assert [row["paper"] for row in rows] == [90.3, 32.25, 92.46, 46.25]
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["accuracy"] == rows[-1]["accuracy"]
    assert record["nonzeros"] == sum(row["nonzeros"] for row in record["layers"]) == 647
    assert says((tmp_path / "report.html").read_text(), "mlpnet", "CHITA")
    with Image.open(tmp_path / "accuracy.png") as picture:
        assert picture.size[0] >= 600
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 50


def test_the_first_table_appears_before_the_slow_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = {"samples": 20, "batch": 2, "ridge": 0.1}
    columns = {
        "magnitude": demo.Column("magnitude"),
        "CHITA": demo.Column("chita-bso", quick),
        "CHITA++": demo.Column("chita++", {**quick, "stages": 2}),
    }
    monkeypatch.setattr(demo, "SPARSITIES", (0.9,))
    monkeypatch.setattr(demo, "COLUMNS", columns)
    demo.run_demo(tmp_path)
    first, second = capsys.readouterr().out.split("MLPNet, dense")[1:]
    assert "..." in first
    assert "..." not in second
    *known, last = json.loads((tmp_path / "demo.json").read_text())["rows"]
    for table in (first, second):
        assert all(f"{row['accuracy']:.2f}" in table for row in known)
    assert f"{last['accuracy']:.2f}" in second
    assert "stages=2" in first
