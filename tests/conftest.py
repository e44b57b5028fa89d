"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.messages import NAMING


def pytest_make_parametrize_id(val: object) -> str | None:
    """Give the patterns of `naming`, which are long, a short part in the name of a test."""
    return "message" if isinstance(val, str) and val.startswith(NAMING) else None


@pytest.fixture
def onnx() -> None:
    """Skip a test where ONNX is not installed."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache in place of that of the user, which may have weights; return its folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "chita"
