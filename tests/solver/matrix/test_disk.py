"""The disk of temporary files."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from chita.solver.matrix.plan import probe_disk


def test_figures_are_likely_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    disk = probe_disk()
    assert abs(disk.free - shutil.disk_usage(tmp_path).free) < 10**10
    assert 1e5 < disk.write < 1e12
    assert 1e5 < disk.read < 1e12
    assert list(tmp_path.iterdir()) == []
