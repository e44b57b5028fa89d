import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import nn

from chita.errors import ChitaError
from chita.files.run_folder import prepare_file, prepare_folder, write_run
from tests.support.messages import naming


def test_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ChitaError, match=naming(str(tmp_path / "file" / "run"))):
        prepare_folder(tmp_path / "file" / "run")


def test_a_file_has_the_name_of_its_kind_and_a_folder_to_be_in(tmp_path: Path) -> None:
    prepare_file(tmp_path / "model.onnx", ".onnx")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ChitaError, match=naming(str(tmp_path / "new"), "model.onnx")):
        prepare_file(tmp_path / "new" / "model.onnx", ".onnx")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "folder.onnx").mkdir()
    for wrong in (tmp_path / "model.pt", tmp_path / "folder.onnx"):
        with pytest.raises(ChitaError, match=naming(".onnx", str(wrong))):
            prepare_file(wrong, ".onnx")


def test_all_of_a_run_can_be_read_again(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    masks = {"weight": torch.tensor([[True, False, True], [False, False, True]])}
    config = {"seed": 3, "include": ("a*", "b*"), "recipe": {"epochs": 2}, "ridge": None}
    write_run(tmp_path, model, masks, config=config, record={"accuracy": 97.5})
    found = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())
    assert torch.equal(load_file(tmp_path / "masks.safetensors")["weight"], masks["weight"])
    told = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert told == {**config, "include": ["a*", "b*"]}
    assert list(told) == list(config)
    assert json.loads((tmp_path / "result.json").read_text()) == {"accuracy": 97.5}
