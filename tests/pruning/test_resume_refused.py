"""What is found in a folder: a run to go on with, one in the way, one of something else."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from chita import ChitaError
from chita.files.folder_lock import lock
from chita.pruning.resume import StageFile
from tests.support.interrupting import STAGES, interrupt_after, interrupt_at, prune
from tests.support.messages import naming, says
from tests.support.pruning import points, same, snapshot, tiny


def unfinished(folder: Path, **keywords: Any) -> None:
    """A run of `tiny` on 24 points that was interrupted after stage 2."""
    model, batches = tiny(), [points(24)]
    interrupt_after(model, folder, 2)
    with pytest.raises(KeyboardInterrupt):
        prune(model, batches, folder, **{"recover": False, **keywords})
    assert StageFile.done(folder) == (2, STAGES)


def test_an_unfinished_run_is_not_given_up(tmp_path: Path) -> None:
    unfinished(tmp_path)
    with pytest.raises(
        ChitaError, match=naming("stage 2", 5, re.compile("resume"), StageFile.file)
    ):
        prune(tiny(), [points(24)], tmp_path, recover=False)
    assert StageFile.done(tmp_path) == (2, STAGES)


def test_a_finished_run_makes_way(tmp_path: Path) -> None:
    """Before the first stage is done: what is found after that is of the new run."""
    prune(tiny(), [points(24)], tmp_path, recover=False)
    model = tiny()
    interrupt_at(model, 1)
    with pytest.raises(KeyboardInterrupt):
        prune(model, [points(24)], tmp_path, seed=1, recover=False)
    assert StageFile.done(tmp_path) is None


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"sparsity": 0.8}, naming("sparsity", 0.9, 0.8)),
        ({"solver": "cd"}, naming("solver", None, "cd")),
        ({"samples": 11}, naming("samples", None, 11, "n", 12)),
        ({"batch": 3}, naming("batch", 2, 3, "n", 12, 8)),
        ({"ridge": 0.1}, naming("ridge", 0.01, 0.1)),
        ({"first_order": False}, naming("first_order", None, False)),
        ({"stages": 6}, naming("stages", 5, 6)),
        ({"schedule": "linear"}, naming("schedule", None, "linear")),
        ({"block_size": 20}, naming("block_size", None, 20)),
        ({"exclude": ["2.*"]}, naming("exclude", None, ["2.*"], "p", 72, 48)),
        ({"seed": 1}, naming("seed", 0, 1)),
    ],
)
def test_other_arguments_are_refused(other: dict[str, Any], message: str, tmp_path: Path) -> None:
    unfinished(tmp_path)
    model = tiny()
    with pytest.raises(ChitaError, match=message):
        prune(model, [points(24)], tmp_path, resume=True, **{"recover": False, **other})
    assert same(snapshot(model), snapshot(tiny()))


def test_another_model_or_other_data_are_refused(tmp_path: Path) -> None:
    unfinished(tmp_path)
    biased = tiny()
    nn.init.ones_(biased[2].bias)
    for model in (tiny(seed=1), biased):
        with pytest.raises(ChitaError, match=naming(StageFile.file, "model")):
            prune(model, [points(24)], tmp_path, resume=True, recover=False)
    with pytest.raises(ChitaError, match=naming(StageFile.file, "data")):
        prune(tiny(), [points(24, seed=1)], tmp_path, resume=True, recover=False)


def test_the_same_may_be_written_otherwise(tmp_path: Path) -> None:
    unfinished(tmp_path, include=["0.weight", "2.weight"])
    keywords = {"include": ("0.weight", "2.weight"), "stages": np.int64(5), "seed": np.uint8(0)}
    assert (
        len(
            prune(
                tiny(), [points(24)], tmp_path, resume=True, **{"recover": False, **keywords}
            ).stages
        )
        == STAGES
    )


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
    with pytest.raises(ChitaError, match=naming(StageFile.file, re.compile("damaged|corrupt"))):
        prune(tiny(), [points(24)], tmp_path, resume=resume, recover=False)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("recover", "part", "key"),
    [(False, "search", "candidate"), (True, "recovery", "plan"), (True, "search", "best")],
)
def test_a_state_without_a_key_is_an_error(
    recover: bool, part: str, key: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"method": "auto", "recover": recover}
    if recover:
        options |= {"budget": "5 steps", "stages": None, "ridge": "auto"}
    prune(tiny(), [points(60)], tmp_path, **options)
    stored = StageFile.read(tmp_path / StageFile.file)
    state = getattr(stored.finished, part)
    changed: Any = {part: {name: value for name, value in state.items() if name != key}}
    file = StageFile(tmp_path, run=stored.run, stages=stored.total)
    file.write(replace(stored.finished, **changed))
    with pytest.raises(ChitaError, match=naming(StageFile.file, key, "--overwrite")):
        prune(tiny(), [points(60)], tmp_path, resume=True, **options)


def test_a_file_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    """Reading finds one stage or the other, however often a run replaces the file."""
    unfinished(tmp_path)
    path = tmp_path / StageFile.file
    contents = [path.read_bytes()]
    prune(tiny(), [points(24)], tmp_path, resume=True, recover=False)
    contents.append(path.read_bytes())
    reading = threading.Event()

    def replace() -> None:
        new = tmp_path / "new"
        while not reading.is_set():
            for content in contents:
                new.write_bytes(content)
                new.replace(path)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        found = {len(StageFile.read(path).finished.rows) for _ in range(1000)}
    finally:
        reading.set()
        thread.join()
    assert found == {2, STAGES}


def test_a_folder_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ChitaError, match=naming("resume=True", "checkpoints")):
        prune(tiny(), [points(24)], None, resume=True, recover=False)
    (tmp_path / "file").touch()
    with pytest.raises(ChitaError, match=naming(str(tmp_path / "file"))):
        prune(tiny(), [points(24)], tmp_path / "file", recover=False)


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    errors: list[str] = []

    def second() -> None:
        try:
            prune(tiny(), [points(24)], tmp_path, recover=False)
        except ChitaError as error:
            errors.append(str(error))

    with lock(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(errors) == 1 and str(tmp_path) in errors[0]
    assert list(tmp_path.iterdir()) == []


def test_one_file_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a process that was killed left is swept up."""
    unfinished(tmp_path)
    scratch = tmp_path / f".unfinished-{StageFile.file}-abc"
    scratch.mkdir()
    (scratch / StageFile.file).write_bytes(b"half")
    with caplog.at_level(logging.INFO, logger="chita"):
        prune(tiny(), [points(24)], str(tmp_path), resume=True, recover=False)  # type: ignore[arg-type]
    assert says(caplog.text, "stage 2", 5)
    assert [path.name for path in tmp_path.iterdir()] == [StageFile.file]


def test_every_flipped_bit_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    """In the header, with the rows, the plan and the options, as well as in the tensors."""
    unfinished(tmp_path)
    path = tmp_path / StageFile.file
    content, expected, noticed = path.read_bytes(), StageFile.read(path), 0
    for bit in range(0, 8 * len(content), 23):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = StageFile.read(path)
        except Exception:  # as ResumableRun reports
            noticed += 1
            continue
        assert (found.run, found.total) == (expected.run, expected.total)
        assert found.finished.rows == expected.finished.rows
        assert found.finished.place == expected.finished.place
        assert torch.equal(found.finished.weights, expected.finished.weights)
        assert torch.equal(found.finished.kept, expected.finished.kept)
    assert noticed > 500
