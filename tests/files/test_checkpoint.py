import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from chita import ChitaError
from chita.files.checkpoint import load_checkpoint, read_checkpoint, save_checkpoint
from chita.files.describe import describe
from tests.support.messages import naming


def make_model(seed: int) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model


def same(first: nn.Module, second: nn.Module) -> bool:
    other = second.state_dict()
    return all(torch.equal(tensor, other[key]) for key, tensor in first.state_dict().items())


def refused(path: Path, match: str) -> None:
    """The checkpoint is refused with that message, and the model stays as it was."""
    model = make_model(1)
    with pytest.raises(ChitaError, match=match):
        load_checkpoint(model, path)
    assert same(model, make_model(1))


def test_safetensors_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_checkpoint(make_model(0), path)
    model = make_model(1)
    load_checkpoint(model, str(path))
    assert same(model, make_model(0))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state, "epoch": 3},
    ],
)
def test_pytorch_files(
    tmp_path: Path, suffix: str, wrap: Callable[[dict[str, Tensor]], object]
) -> None:
    path = tmp_path / f"model{suffix}"
    torch.save(wrap(make_model(0).state_dict()), path)
    model = make_model(1)
    load_checkpoint(model, path)
    assert same(model, make_model(0))


def test_misfits_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    state = make_model(0).state_dict()
    renamed = {key.replace("2.", "last."): tensor for key, tensor in state.items()}
    save_checkpoint(renamed, path)
    refused(path, naming(str(path), "2.weight", "last.weight"))
    save_checkpoint({**state, "2.weight": torch.zeros(2, 5)}, path)
    refused(path, naming(str(path), "2.weight", "(2, 5)", "(2, 4)"))
    torch.save({"state_dict": [1, 2]}, tmp_path / "model.pt")
    refused(tmp_path / "model.pt", naming("model.pt", "'state_dict'"))
    torch.save(torch.zeros(3), tmp_path / "model.pt")
    refused(tmp_path / "model.pt", naming("model.pt", "'state_dict'"))


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt"])
def test_missing_and_damaged_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    refused(path, naming(name))
    state = make_model(0).state_dict()
    if name == "model.pt":
        torch.save(state, path)
    else:
        save_checkpoint(state, path)
    whole = path.read_bytes()
    for damaged in (b"", b"garbage", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        refused(path, naming(name))


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.target,)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    path, target = tmp_path / "model.pt", tmp_path / "touched"
    torch.save({"weight": Malicious(target)}, path)
    refused(path, naming("model.pt"))
    path.write_bytes(pickle.dumps(Malicious(target), protocol=2))
    refused(path, naming("model.pt"))
    assert not target.exists()


def test_tied_and_transposed_tensors(tmp_path: Path) -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    model["b"].weight = model["a"].weight
    path = tmp_path / "tied.safetensors"
    save_checkpoint(model, path)
    found = load_file(path)
    assert torch.equal(found["a.weight"], found["b.weight"])
    load_checkpoint(model, path)
    assert model["a"].weight is model["b"].weight
    matrix = torch.arange(6.0).reshape(2, 3)
    save_checkpoint({"t": matrix.T, "mask": matrix > 2}, path)
    assert torch.equal(load_file(path)["t"], matrix.T)
    assert torch.equal(load_file(path)["mask"], matrix > 2)


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match="nowhere"):
        save_checkpoint(make_model(0), tmp_path / "nowhere" / "model.safetensors")
    folder = tmp_path / "model.safetensors"  # a folder cannot be replaced by a file
    folder.mkdir()
    with pytest.raises(ChitaError, match=naming(str(folder))):
        save_checkpoint(make_model(0), folder)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("wrap", [lambda state: state, lambda state: {"model": state}])
def test_names_that_are_numbers_are_refused(
    wrap: Callable[[dict[Any, Any]], dict[str, Any]], tmp_path: Path
) -> None:
    torch.save(wrap({0: torch.eye(2), "1": torch.eye(2)}), tmp_path / "numbers.pt")
    with pytest.raises(ChitaError, match=naming("numbers.pt", "names")):
        read_checkpoint(tmp_path / "numbers.pt")
    with pytest.raises(ChitaError, match=naming("numbers.pt", "names")):
        load_checkpoint(nn.Linear(2, 2), tmp_path / "numbers.pt")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
@pytest.mark.parametrize("name", ["pipe.pt", "pipe.safetensors"])
def test_a_pipe_is_refused(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / name).symlink_to("pipe")
    for read in (read_checkpoint, describe):
        with pytest.raises(ChitaError, match=naming(name)):
            read(tmp_path / name)


def test_what_is_not_a_dense_tensor_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    for tensor in (
        torch.eye(2).to_sparse(),
        torch.empty(2, 2, device="meta"),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    ):
        torch.save({"weight": tensor, "bias": torch.ones(2)}, path)
        for read in (
            read_checkpoint,
            describe,
            lambda path: load_checkpoint(nn.Linear(2, 2), path),
        ):
            with pytest.raises(ChitaError, match=naming(str(path), "weight")):
                read(path)


def test_a_small_file_of_a_huge_tensor_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """An expanded tensor takes no memory until something counts its zeros."""
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.zeros(1).expand(10**12)}, path)
    with pytest.raises(ChitaError, match=naming(str(path), "expanded", "4,000,000,000,000")):
        read_checkpoint(path)
    torch.save({"ids": torch.arange(10).expand(1, -1), "bias": torch.zeros(1).expand(3)}, path)
    assert read_checkpoint(path)["bias"].tolist() == [0, 0, 0]


def test_a_compressed_archive_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path, packed = tmp_path / "plain.pt", tmp_path / "packed.pt"
    torch.save({"weight": torch.zeros(10**6)}, path)
    with zipfile.ZipFile(path) as plain, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for member in plain.infolist():
            new.writestr(member.filename, plain.read(member))
    assert packed.stat().st_size < 10_000
    with pytest.raises(ChitaError, match=naming(str(packed), "memory")):
        read_checkpoint(packed)


def test_a_file_that_is_replaced_while_it_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The header of one file and the tensors of another are never given together."""
    path, read = tmp_path / "model.safetensors", load_file
    save_checkpoint({"old": torch.zeros(4)}, path)

    def replaced(given: Path) -> dict[str, Tensor]:
        monkeypatch.setattr("safetensors.torch.load_file", read)
        save_checkpoint({"new": torch.ones(4)}, path)
        return {"old": torch.ones(4)}

    monkeypatch.setattr("safetensors.torch.load_file", replaced)
    assert read_checkpoint(path).keys() == {"new"}


def test_names_that_cannot_be_printed_stay_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_checkpoint({"a\nerror: b": torch.zeros(1)}, path)
    with pytest.raises(ChitaError) as caught:
        load_checkpoint(make_model(0), path)
    assert "\n" not in str(caught.value)
