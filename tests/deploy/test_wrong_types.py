"""accelerate, export_onnx, save and load with arguments of wrong types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import chita
from chita import ChitaError
from tests.support.messages import naming


def empty_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 0), nn.Linear(0, 2))


@pytest.mark.parametrize("form", [[], {}, 5, "", True])
def test_forms(form: Any) -> None:
    with pytest.raises(ChitaError, match=naming("form", form, "csr")):
        chita.accelerate(nn.Linear(4, 3), torch.randn(2, 4), form=form)


@pytest.mark.parametrize("form", [None, "compact", "csr", "sums"])
def test_layers_without_weights_stay_dense(form: str | None) -> None:
    model, x = empty_layers(), torch.randn(2, 4)
    with torch.no_grad():
        model[0].weight[0] = 0
    fast = chita.accelerate(model, x, form=form)
    assert [row.name for row in fast.layers] == ["0"]
    torch.testing.assert_close(fast.model(x), model(x))


@pytest.mark.parametrize("path", ["a\0b.onnx", "a\0b", "", "a" * 300 + ".onnx", b"a.onnx", None])
def test_paths(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    for use in (
        lambda: chita.export_onnx(model, x, path),
        lambda: chita.save(model, path),
        lambda: chita.load(path),
    ):
        with pytest.raises(ChitaError, match=naming("path")):
            use()
    assert list(tmp_path.iterdir()) == []
