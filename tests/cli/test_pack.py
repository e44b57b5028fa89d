import json
from pathlib import Path

import pytest
import torch

import chita
from chita import ChitaError
from chita.files.checkpoint import load_checkpoint, save_checkpoint
from chita.zoo import MLPNet
from tests.files.packed.states import same_bits, small_state, sparse
from tests.support.command import invoke
from tests.support.messages import naming, says


@pytest.mark.parametrize("name", ["file.safetensors", "file.pt", "folder"])
def test_pack_and_unpack(tmp_path: Path, name: str) -> None:
    state, source = small_state(), tmp_path / name
    if name == "file.pt":
        torch.save({"state_dict": state}, source)
    elif name == "folder":
        source.mkdir()
        save_checkpoint(state, source / "model.safetensors")
    else:
        save_checkpoint(state, source)
    packed, dense = tmp_path / "packed.safetensors", tmp_path / "dense.safetensors"
    assert "packed.safetensors" in invoke("pack", source, packed)
    assert same_bits(chita.load(packed), state)
    assert says(invoke("unpack", packed, dense), "6 tensors")
    save_checkpoint(state, tmp_path / "wanted.safetensors")
    assert dense.read_bytes() == (tmp_path / "wanted.safetensors").read_bytes()


def test_a_file_packed_in_place_is_compared_with_what_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file.safetensors"
    save_checkpoint({"weight": sparse((50, 40), 0.05)}, file)
    before = file.stat().st_size
    said = invoke("pack", file, file)
    after = file.stat().st_size
    assert after < before / 4
    assert says(" ".join(said.split()), f"{after:,}", f"{after / before:.4f}", f"{before:,}")


def test_inspect(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    chita.save(small_state() | {"[bold]": sparse((4, 4), 0.5)}, path)
    text = invoke("inspect", path)
    assert says(text, "[bold]", "40x50", "deltas", "packed")
    report = json.loads(invoke("inspect", path, "--json"))
    assert report["packed"] and len(report["tensors"]) == 7
    invoke("unpack", path, path)
    assert says(invoke("inspect", path), "plain")


def test_a_packed_file_is_a_checkpoint(tmp_path: Path) -> None:
    model, other = MLPNet(), MLPNet()
    chita.save(model, tmp_path / "packed.safetensors")
    load_checkpoint(other, tmp_path / "packed.safetensors")
    assert same_bits(model.state_dict(), other.state_dict())


def test_errors_name_the_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain.safetensors"
    save_checkpoint(small_state(), plain)
    for arguments, match in (
        (("pack", plain, tmp_path / "out.bin"), naming(".safetensors", "out.bin")),
        (("pack", plain, tmp_path), naming(".safetensors", str(tmp_path))),
        (
            ("pack", plain, tmp_path / "new/a.safetensors"),
            naming(str(tmp_path / "new"), "a.safetensors"),
        ),
        (("pack", tmp_path / "absent", plain), naming(str(tmp_path / "absent"))),
        (("unpack", plain, plain), naming("plain.safetensors", "chita pack")),
        (("inspect", tmp_path / "absent"), naming(str(tmp_path / "absent"))),
    ):
        with pytest.raises(ChitaError, match=match):
            invoke(*arguments)
    assert list(tmp_path.iterdir()) == [plain]


@pytest.mark.parametrize("command", ["pack", "inspect"])
def test_the_folder_of_an_interrupted_run_is_known(command: str, tmp_path: Path) -> None:
    (tmp_path / "stage.safetensors").touch()
    out = [tmp_path / "out.safetensors"] if command == "pack" else []
    with pytest.raises(
        ChitaError, match=naming("stage.safetensors", "model.safetensors", "--resume")
    ):
        invoke(command, tmp_path, *out)
    save_checkpoint(small_state(), tmp_path / "model.safetensors")
    invoke(command, tmp_path, *out)
