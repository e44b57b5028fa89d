"""The command `chita export`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import chita
from chita.deploy.onnx_file import open_onnx, run_onnx
from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.files.run_folder import write_run
from tests.support.command import invoke
from tests.support.messages import naming, says
from tests.support.pruning import mlpnet, unseen_digits


def export(*arguments: str | Path) -> str:
    return invoke("export", *arguments)


@pytest.mark.slow
@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("of", ["a run", "a checkpoint"])
def test_the_file_answers_as_the_pruned_network_does(of: str, tmp_path: Path) -> None:
    result = chita.prune(mlpnet(), [], sparsity=0.9, method="magnitude", progress=False)
    out = tmp_path / "m.onnx"
    if of == "a run":
        config = {"network": "mlpnet"}
        write_run(tmp_path, result.model, result.masks, config=config, record=result.to_dict())
        text = export(tmp_path, out)
    else:
        save_checkpoint(result.model, tmp_path / "pruned.safetensors")
        text = export(tmp_path / "pruned.safetensors", out, "--network", "mlpnet")
    assert says(text.splitlines()[-1], "mlpnet", str(out), "onnxruntime", re.compile(r"\de-\d"))
    images = unseen_digits()[0][0][:7]
    (found,) = run_onnx(open_onnx(out.read_bytes()), images)
    with torch.no_grad():
        torch.testing.assert_close(found, result.model.eval()(images), rtol=1e-4, atol=1e-4)


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming(".onnx", "m.safetensors")):
        export("mlpnet", tmp_path / "m.safetensors")
    save_checkpoint(mlpnet(), tmp_path / "alone.safetensors")
    with pytest.raises(ChitaError, match=naming("alone.safetensors", "config.yaml", "--network")):
        export(tmp_path / "alone.safetensors", tmp_path / "m.onnx")
    with pytest.raises(ChitaError, match=naming("lenet", "mlpnet")):
        export("lenet", tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
