"""ONNX files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import chita
from chita.deploy import onnx_file
from chita.deploy.onnx_file import open_onnx, run_onnx
from chita.errors import ChitaError
from tests.support.messages import naming
from tests.support.pruning import mlpnet

pytestmark = pytest.mark.slow

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)


def test_the_file_gives_what_the_model_gives_for_any_batch(tmp_path: Path) -> None:
    model, path = mlpnet().train(), tmp_path / "m.onnx"
    chita.prune(model, [], sparsity=0.9, method="magnitude", progress=False)
    worst = chita.export_onnx(model, torch.randn(2, 1, 28, 28), path)
    assert 0 <= worst < 1e-5 and model.training
    images = torch.randn(7, 1, 28, 28)
    (found,) = run_onnx(open_onnx(path.read_bytes()), images)
    with torch.no_grad():
        torch.testing.assert_close(found, model(images), rtol=1e-4, atol=1e-5)
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]  # all is in the one file


def test_several_inputs_and_outputs_by_keyword(tmp_path: Path) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.layer = nn.BatchNorm1d(4), nn.Linear(4, 3)

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return self.layer(self.norm(x)), x - 2 * y

    example = {"x": torch.randn(3, 4), "y": torch.randn(3, 4)}
    assert chita.export_onnx(Both(), example, tmp_path / "both.onnx") < 1e-5
    assert chita.export_onnx(Both(), tuple(example.values()), tmp_path / "both.onnx") < 1e-5


def test_half_precision_is_compared_as_such(tmp_path: Path) -> None:
    """The sums of 512 products differ by more than 1e-4 of the largest in float16."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).half()
    worst = chita.export_onnx(model, torch.randn(16, 512).half(), tmp_path / "half.onnx")
    assert 1e-4 < worst < 9e-3


@pytest.mark.parametrize(
    ("example", "path", "message"),
    [
        ("m.onnx", torch.randn(2, 4), naming("path", "Tensor")),
        (None, "m.onnx", naming("example", None)),
        (torch.randn(2, 4), "m.txt", naming(".onnx", "m.txt")),
        (torch.randn(2, 4), "nowhere/m.onnx", naming("nowhere", "m.onnx")),
    ],
)
def test_wrong_arguments_are_named(
    example: Any, path: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChitaError, match=message):
        chita.export_onnx(nn.Linear(4, 3), example, path)
    assert not list(tmp_path.iterdir())


def test_the_model_must_be_a_module(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming("model", "torch.nn.Module", "'m'")):
        chita.export_onnx("m", torch.randn(2, 4), tmp_path / "m.onnx")  # type: ignore[arg-type]


def test_a_file_that_is_off_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = onnx_file.onnx_bytes(nn.Linear(4, 3), torch.randn(2, 4))
    monkeypatch.setattr(onnx_file, "onnx_bytes", lambda model, example, opset: other)
    with pytest.raises(ChitaError, match=naming("ONNX", re.compile(r"\d\.\de\+00"), "1e-04")):
        chita.export_onnx(nn.Linear(4, 3), torch.randn(2, 4), tmp_path / "off.onnx")
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_be_exported(tmp_path: Path) -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if float(x.sum()) > len(str(x)) else -x

    with pytest.raises(ChitaError, match=naming("ONNX", "data-dependent")) as caught:
        chita.export_onnx(Branching(), torch.randn(2, 4), tmp_path / "no.onnx")
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_an_error_of_the_exporter_without_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(ChitaError, match=naming("ONNX", "NotImplementedError")):
        chita.export_onnx(nn.Linear(4, 3), torch.randn(2, 4), tmp_path / "no.onnx")


def test_what_onnxruntime_cannot_do_is_said(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming("onnxruntime", "NOT_IMPLEMENTED")):
        chita.export_onnx(
            nn.Linear(4, 3).bfloat16(), torch.randn(2, 4).bfloat16(), tmp_path / "half.onnx"
        )
    with pytest.raises(ChitaError, match=naming("onnxruntime", "INVALID_PROTOBUF")):
        open_onnx(b"no such file")
    session = open_onnx(onnx_file.onnx_bytes(nn.Linear(4, 3), torch.randn(2, 4)))
    with pytest.raises(ChitaError, match=naming("onnxruntime", "INVALID_ARGUMENT")):
        run_onnx(session, torch.randn(2, 5))
    assert not list(tmp_path.iterdir())


def test_errors_of_onnxruntime_without_text_are_named_by_their_type() -> None:
    class Failing:
        def get_inputs(self) -> list[Any]:
            return []

        def run(self, *_: object) -> None:
            raise NotImplementedError

    with pytest.raises(ChitaError, match=naming("onnxruntime", "NotImplementedError")):
        run_onnx(Failing(), ())  # type: ignore[arg-type]


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ChitaError, match=naming("onnx", "pip install 'chita[onnx]'")):
        chita.export_onnx(nn.Linear(4, 3), torch.randn(2, 4), tmp_path / "no.onnx")


def test_a_network_of_nan_is_refused(tmp_path: Path) -> None:
    """The file gives NaN where the model does, so that a comparison of both finds no difference."""
    model = mlpnet()
    with torch.no_grad():
        model.get_parameter("fc2.weight")[3] = float("nan")
    with pytest.raises(ChitaError, match=naming("NaN", "fc2.weight")):
        chita.export_onnx(model, torch.randn(2, 1, 28, 28), tmp_path / "m.onnx")

    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / (x - x)

    with pytest.raises(ChitaError, match=naming("NaN", "outputs")):
        chita.export_onnx(Broken(), torch.zeros(2, 3), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_an_opset_that_is_not_written_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for opset in (999, 0, "x", True):
        with pytest.raises(ChitaError, match=naming("opset", opset)):
            chita.export_onnx(nn.Linear(3, 2), torch.randn(2, 3), path, opset=opset)  # type: ignore[arg-type]
    assert not path.exists()
