"""Damaged files in a Hugging Face folder: the error names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from chita.errors import ChitaError
from chita.references.resolve import resolve_network
from tests.support.language import write_llama
from tests.support.messages import naming

pytest.importorskip("transformers")

WEIGHTS = "model.safetensors"
PART = "model-00002-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "model")


def read(folder: Path, **arguments: Any) -> None:
    network = resolve_network(f"hf:{folder}", arguments)
    assert network.build_trained is not None
    network.build_trained()


@pytest.mark.parametrize("damage", ["cut", "other", "empty"])
def test_a_damaged_file_of_weights_is_named(folder: Path, damage: str) -> None:
    path = folder / WEIGHTS
    content = {"cut": path.read_bytes()[:3000], "other": b"\xff" * 3000, "empty": b""}
    path.write_bytes(content[damage])
    with pytest.raises(ChitaError, match=naming(str(path))):
        read(folder)


def test_missing_weights_are_named(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "model-00001-of-00002.safetensors")
    with pytest.raises(ChitaError, match=naming(str(folder), WEIGHTS)):
        read(folder)
    index = folder / f"{WEIGHTS}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"model.norm.weight": PART}}))
    with pytest.raises(ChitaError, match=naming(str(folder / PART))):
        read(folder)
    index.write_text("{")
    with pytest.raises(ChitaError, match=naming(str(index))):
        read(folder)


def test_a_damaged_pickled_file_is_named(folder: Path) -> None:
    path = (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    with pytest.raises(ChitaError, match=naming(str(path), without="weights_only")):
        read(folder)


def test_a_damaged_gguf_file_is_named(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    path.write_bytes(b"\xff" * 3000)
    with pytest.raises(ChitaError, match=naming(str(path))):
        read(tmp_path)


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("value", ["float99", "int8", "nn", 7])
def test_an_unknown_precision_in_the_configuration_is_named(
    folder: Path, name: str, value: object
) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    kept = {key: found for key, found in config.items() if "dtype" not in key}
    path.write_text(json.dumps({**kept, name: value}))
    with pytest.raises(ChitaError, match=naming(str(path), name, value, "float32")):
        read(folder)


def test_an_error_with_other_causes_stays(folder: Path) -> None:
    read(folder, dtype=torch.float64)
    with pytest.raises(ChitaError, match=naming(f"hf:{folder}", "dtype", without="config.json")):
        read(folder, dtype="float99")
    (folder / "config.json").write_text("[]")
    with pytest.raises(ChitaError, match=naming(str(folder / "config.json"))):
        read(folder)
