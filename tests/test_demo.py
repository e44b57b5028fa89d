from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from chita import demo


def test_demo_draws_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SPARSITIES", (0.9, 0.98))
    monkeypatch.setattr(demo, "METHODS", {"magnitude": "magnitude", "CHITA": "chita-bso"})
    console = Console(width=100, record=True, quiet=False, file=(tmp_path / "log").open("w"))
    demo.run_demo(tmp_path, console)
    text = console.export_text()
    assert "magnitude" in text
    assert "CHITA" in text
    assert "98%" in text
    with Image.open(tmp_path / "accuracy.png") as picture:
        assert picture.size[0] >= 600
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 50
