import json
from pathlib import Path

import torch

import chita
from chita.files.checkpoint import save_checkpoint
from chita.files.describe import describe
from tests.files.packed.states import small_state


def test_a_packed_file(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    state = small_state()
    chita.save(state, path)
    report = describe(path)
    rows = {row.name: row for row in report.tensors}
    assert rows.keys() == state.keys()
    for name, tensor in state.items():
        assert rows[name].shape == tuple(tensor.shape)
        assert rows[name].nonzeros == int((tensor != 0).sum())
        assert rows[name].dense_bytes == tensor.nbytes
    forms = {name: row.form for name, row in rows.items()}
    assert forms == {
        "rare": "deltas",
        "tied": "tied to rare",
        "half": "mask",
        "signed": "deltas",
        "dense": "dense",
        "steps": "dense",
    }
    assert rows["dense"].pattern == "dense" and rows["rare"].pattern == "unstructured"
    assert rows["rare"].sparsity == 1 - rows["rare"].nonzeros / 2000
    assert report.packed and report.file_bytes == path.stat().st_size
    stored = sum(row.stored_bytes for row in report.tensors)
    assert 0 < report.file_bytes - stored < 1000  # the header and the directory
    assert rows["tied"].stored_bytes == 0
    written = json.loads(json.dumps(report.to_dict()))
    assert written["ratio"] == report.file_bytes / report.dense_bytes
    assert written["tensors"][0]["sparsity"] == rows["rare"].sparsity


def test_a_plain_file(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    save_checkpoint(small_state(), path)
    report = describe(path)
    assert not report.packed and report.ratio > 1
    assert {row.form for row in report.tensors} == {"dense"}
    assert sum(row.stored_bytes for row in report.tensors) == report.dense_bytes
    torch.save(small_state(), tmp_path / "file.pt")
    assert {r.name: r.form for r in describe(tmp_path / "file.pt").tensors}[
        "tied"
    ] == "tied to rare"
