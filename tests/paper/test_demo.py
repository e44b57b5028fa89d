import json
from pathlib import Path

import pytest
from PIL import Image

from chita.paper import demo
from tests.support.messages import says


def test_demo_draws_and_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "SPARSITIES", (0.9, 0.98))
    monkeypatch.setattr(demo, "METHODS", {"magnitude": "magnitude", "CHITA": "chita-bso"})
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
