import errno
import sys
from pathlib import Path
from typing import Any

import pytest

from chita.errors import ChitaError
from chita.report.figures import accuracy_figure
from tests.support.messages import naming


def test_missing_matplotlib_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ChitaError, match=naming("pip install 'chita[plots]'")):
        accuracy_figure(tmp_path / "a.png", [0.5], {"x": [1.0]}, dense=2.0, title="t")
    assert not (tmp_path / "a.png").exists()


def test_a_full_disk_is_an_error_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the figure is on the disk before it is drawn."""

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ChitaError, match=naming("a.png", "No space left on device")):
        accuracy_figure(tmp_path / "a.png", [0.5], {"x": [1.0]}, dense=2.0, title="t")
    assert list(tmp_path.iterdir()) == []
