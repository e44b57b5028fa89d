"""What is found in a folder: a run to go on with, one in the way, one of something else."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from chita import ChitaError
from chita.pruning.resume import StageFile
from tests.support.interrupting import STAGES, interrupt_at, passes, prune
from tests.support.pruning import points, same, snapshot, tiny


def unfinished(folder: Path, **keywords: Any) -> None:
    """A run of `tiny` on 24 points that was interrupted after stage 2."""
    model, batches = tiny(), [points(24)]
    interrupt_at(model, 2 * passes(batches, **keywords) // STAGES + 1)
    with pytest.raises(KeyboardInterrupt):
        prune(model, batches, folder, **keywords)
    assert StageFile.done(folder) == (2, STAGES)


def test_an_unfinished_run_is_not_given_up(tmp_path: Path) -> None:
    unfinished(tmp_path)
    with pytest.raises(ChitaError, match=r"interrupted after stage 2 of 5.*resume.*another folder"):
        prune(tiny(), [points(24)], tmp_path)
    assert StageFile.done(tmp_path) == (2, STAGES)


def test_a_finished_run_makes_way(tmp_path: Path) -> None:
    """Before the first stage is done: what is found after that is of the new run."""
    prune(tiny(), [points(24)], tmp_path)
    model = tiny()
    interrupt_at(model, 1)
    with pytest.raises(KeyboardInterrupt):
        prune(model, [points(24)], tmp_path, seed=1)
    assert StageFile.done(tmp_path) is None


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"sparsity": 0.8}, "sparsity is 0.9 there, 0.8 here"),
        ({"solver": "cd"}, "solver is None there, 'cd' here"),
        ({"samples": 11}, "samples is None there, 11 here; n is 12 there, 11 here"),
        ({"batch": 3}, "batch is 2 there, 3 here; n is 12 there, 8 here"),
        ({"ridge": 0.1}, "ridge is 0.01 there, 0.1 here"),
        ({"first_order": False}, "first_order is None there, False here"),
        ({"stages": 6}, "stages is 5 there, 6 here"),
        ({"schedule": "linear"}, "schedule is None there, 'linear' here"),
        ({"block_size": 20}, "block_size is None there, 20 here"),
        ({"exclude": ["2.*"]}, r"exclude is None there, \['2.\*'\] here; p is 72 there, 48 here"),
        ({"seed": 1}, "seed is 0 there, 1 here"),
    ],
)
def test_other_arguments_are_refused(other: dict[str, Any], says: str, tmp_path: Path) -> None:
    unfinished(tmp_path)
    model = tiny()
    with pytest.raises(ChitaError, match=f"{StageFile.file} is of another run: {says}; give"):
        prune(model, [points(24)], tmp_path, resume=True, **other)
    assert same(snapshot(model), snapshot(tiny()))


def test_another_model_or_other_data_are_refused(tmp_path: Path) -> None:
    unfinished(tmp_path)
    biased = tiny()
    nn.init.ones_(biased[2].bias)
    for model in (tiny(seed=1), biased):
        with pytest.raises(ChitaError, match="run: the fingerprint of the model at the start is"):
            prune(model, [points(24)], tmp_path, resume=True)
    with pytest.raises(ChitaError, match="run: the fingerprint of the data is"):
        prune(tiny(), [points(24, seed=1)], tmp_path, resume=True)


def test_the_same_may_be_written_otherwise(tmp_path: Path) -> None:
    unfinished(tmp_path, include=["0.weight", "2.weight"])
    keywords = {"include": ("0.weight", "2.weight"), "stages": np.int64(5), "seed": np.uint8(0)}
    assert len(prune(tiny(), [points(24)], tmp_path, resume=True, **keywords).stages) == STAGES


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("damage", ["short", "empty", "other", "foreign", "older"])
def test_damaged_and_foreign_files_are_errors(damage: str, resume: bool, tmp_path: Path) -> None:
    unfinished(tmp_path)
    path = tmp_path / StageFile.file
    content = path.read_bytes()
    if damage == "foreign":
        save_file({"weights": torch.zeros(72), "kept": torch.zeros(72)}, path)
    else:
        older = content.replace(b"rows", b"rose")
        path.write_bytes(
            {"short": content[:-1], "empty": b"", "other": b"text" * 50, "older": older}[damage]
        )
    before = path.read_bytes()
    with pytest.raises(ChitaError, match=rf"cannot read .*{StageFile.file}.*damaged.*delete it"):
        prune(tiny(), [points(24)], tmp_path, resume=resume)
    assert path.read_bytes() == before


def test_a_folder_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match="resume=True needs checkpoints"):
        prune(tiny(), [points(24)], None, resume=True)
    (tmp_path / "file").touch()
    with pytest.raises(ChitaError, match="cannot write"):
        prune(tiny(), [points(24)], tmp_path / "file")


def test_one_file_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a process that was killed left is swept up."""
    unfinished(tmp_path)
    scratch = tmp_path / f".unfinished-{StageFile.file}-abc"
    scratch.mkdir()
    (scratch / StageFile.file).write_bytes(b"half")
    with caplog.at_level(logging.INFO, logger="chita"):
        prune(tiny(), [points(24)], str(tmp_path), resume=True)  # type: ignore[arg-type]
    assert "continuing after stage 2 of 5" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == [StageFile.file]
