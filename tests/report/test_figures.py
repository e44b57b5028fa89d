import sys
from pathlib import Path

import pytest

from chita.errors import ChitaError
from chita.report.figures import accuracy_figure


def test_missing_matplotlib_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ChitaError, match=r"chita\[plots\]"):
        accuracy_figure(tmp_path / "a.png", [0.5], {"x": [1.0]}, dense=2.0, title="t")
    assert not (tmp_path / "a.png").exists()
