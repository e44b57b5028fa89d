"""The runtimes: the outputs of the model where they are installed, the pip line where not."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import nn

from chita.deploy.example_input import agrees
from chita.deploy.paths import exported
from chita.deploy.paths.exported import Exported
from chita.deploy.paths.runtimes import RUNTIMES
from chita.errors import ChitaError
from tests.deploy.sparse_models import normal, sparse
from tests.support.messages import naming

PIP = {
    "onnxruntime": "chita[onnx]",
    "openvino": "chita[openvino]",
    "deepsparse": "deepsparse==1.8.0",
}


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_missing_package_names_its_pip_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(ChitaError, match=naming(name, "pip install", PIP[name])):
        RUNTIMES[name](Exported(nn.Linear(4, 2), normal(2, 4)))


@pytest.mark.slow
@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_gives_the_outputs_of_the_model(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    layers = (sparse(nn.Conv2d(3, 8, 3), 0.8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    model = nn.Sequential(*layers).eval()
    x = normal(2, 3, 8, 8)
    path = RUNTIMES[name](Exported(model, x))
    with torch.no_grad():
        assert agrees(path(), model(x))
