"""Paths against dense: what is timed, and what is recommended."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chita.deploy.paths import exported
from chita.deploy.speed import Comparison, compare, comparison_table, measure_speed
from chita.deploy.timing import Timing
from chita.errors import ChitaError
from chita.report.tables import as_text
from tests.deploy.sparse_models import normal, sparse, wide
from tests.support.messages import naming, says

CPU = torch.device("cpu")


def sleeping(seconds: float, answer: float = 1.0) -> Any:
    def path() -> Tensor:
        time.sleep(seconds)
        return torch.tensor([answer])

    return path


def judged(paths: dict[str, Any]) -> Comparison:
    return compare(paths, CPU, 1, {}, [])


@pytest.mark.usefixtures("fake_clock")
@pytest.mark.parametrize("slowdown", [1.3, 3.0])
def test_a_slower_path_is_never_recommended(slowdown: float) -> None:
    found = judged({"dense": sleeping(0.002), "slow": sleeping(0.002 * slowdown)})
    assert found.best is None
    assert says(found.advice, "batch 1", "dense")
    assert found.to_dict()["use"] == "dense"


@pytest.mark.usefixtures("fake_clock")
def test_the_fastest_is_recommended_beside_slower_ones() -> None:
    seconds = {"slow": 0.012, "dense": 0.006, "csr": 0.001, "sums": 0.003}
    found = judged({name: sleeping(second) for name, second in seconds.items()})
    assert found.best == "csr"
    assert says(found.advice, "batch 1", "csr", "form='csr'")


@pytest.mark.usefixtures("fake_clock")
def test_a_path_that_is_wrong_or_fails_is_not_timed() -> None:
    def fails() -> Tensor:
        raise RuntimeError("no such kernel\nand a long story")

    found = judged({"dense": sleeping(0.004), "wrong": sleeping(0.0, 1.5), "fails": fails})
    assert list(found.timings) == ["dense"] and found.best is None
    assert found.left_out.keys() == {"wrong", "fails"}
    assert says(found.left_out["wrong"], "5.0e-01")
    assert says(found.left_out["fails"], "no such kernel", without="\n")


@pytest.mark.usefixtures("fake_clock")
def test_an_error_without_text_is_named_by_its_type() -> None:
    def fails() -> Tensor:
        raise NotImplementedError

    found = judged({"dense": sleeping(0.004), "fails": fails})
    assert says(found.left_out["fails"], "NotImplementedError")


def test_a_gain_within_the_spread_is_none() -> None:
    dense = Timing((1.0, 1.1) * 10)
    noisy = Timing((0.5, 1.6, 0.9, 1.0) * 5)
    found = Comparison(8, {"dense": dense, "csr": noisy}, {"dense": 0.0, "csr": 0.0}, {}, [])
    assert noisy.median < dense.median and found.best is None


@pytest.mark.usefixtures("fake_clock")
@pytest.mark.parametrize(("seconds", "share"), [(0.002, "as fast without"), (0.004, "2.00")])
def test_the_advice_states_the_share_of_the_zeros(seconds: float, share: str) -> None:
    """A runtime that is fast without zeros, too, is no reason to prune."""
    paths = {"dense": sleeping(0.008), "openvino": sleeping(0.002), "csr": sleeping(0.012)}
    copies = {"openvino": sleeping(seconds, 7.0)}  # its outputs may differ
    found = compare(paths, CPU, 1, {}, [], without_zeros=copies)
    assert found.best == "openvino" and set(found.timings) == set(paths)
    assert says(found.advice, share)
    assert found.gain_by_zeros("openvino") == pytest.approx(seconds / 0.002, rel=0.05)
    assert found.gain_by_zeros("csr") == pytest.approx(8 / 12, rel=0.05)
    assert found.to_dict()["paths"]["openvino"]["by_zeros"] == found.gain_by_zeros("openvino")


@pytest.fixture
def no_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(model: nn.Module, example: Any, opset: int | None = None) -> bytes:
        raise ChitaError("ONNX needs onnx")

    monkeypatch.setattr(exported, "onnx_bytes", missing)


@pytest.mark.usefixtures("no_onnx")
def test_all_paths_of_a_sparse_model() -> None:
    model, x = wide(0.99, size=256), normal(32, 256)
    found = measure_speed(model, x, 32)
    assert {"dense", "csr", "sums"} <= set(found.timings)
    assert found.left_out["onnxruntime"] == "ONNX needs onnx"
    assert says(found.left_out["2:4"], "layer")
    assert all(gap < 1e-5 for gap in found.differences.values())
    rivals = {name: timing for name, timing in found.timings.items() if name != "dense"}
    beaten = {name for name, timing in rivals.items() if timing.beats(found.timings["dense"])}
    assert (found.best in beaten) == bool(beaten)
    assert says(found.advice, "batch 32", found.best if beaten else "dense")
    record = json.loads(json.dumps(found.to_dict()))
    assert record["batch"] == 32 and set(record["paths"]) == set(found.timings)
    assert record["paths"]["dense"]["times_as_fast"] == pytest.approx(1.0)
    text = as_text(comparison_table(found))
    assert says(" ".join(text.split()), f"2:4 ({found.left_out['2:4']})", "batch 32")


@pytest.mark.usefixtures("no_onnx")
def test_a_dense_model_has_one_path_and_keeps_its_modes() -> None:
    model = nn.Sequential(sparse(nn.Linear(8, 8), 0.0), nn.Dropout()).train()
    found = measure_speed(model, normal(2, 8), 2)
    assert list(found.timings) == ["dense"] and found.best is None
    assert model.training and model[1].training


@pytest.mark.usefixtures("no_onnx")
def test_a_model_that_answers_differently_each_time() -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.rand(x.shape[0], 1)

    with pytest.raises(ChitaError, match=naming("outputs", re.compile(r"\d\.\de.0\d"))):
        measure_speed(Noisy(8, 4), normal(2, 8), 2)


@pytest.mark.slow
@pytest.mark.usefixtures("onnx")
def test_onnxruntime_says_why_it_is_no_path() -> None:
    model = sparse(nn.Linear(16, 4), 0.5).bfloat16()
    found = measure_speed(model, normal(2, 16).bfloat16(), 2)
    assert "onnxruntime" not in found.timings and "dense" in found.timings
    assert says(found.left_out["onnxruntime"], "onnxruntime", "NOT_IMPLEMENTED")


@pytest.mark.slow
@pytest.mark.usefixtures("onnx")
def test_onnxruntime_is_a_path() -> None:
    found = measure_speed(sparse(nn.Linear(16, 4), 0.5), normal(2, 16), 2)
    assert found.differences["onnxruntime"] < 1e-5
