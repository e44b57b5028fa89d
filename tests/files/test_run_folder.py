"""The folders of runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import nn

from chita.errors import ChitaError
from chita.files.run_folder import (
    CONFIG_FILE,
    EPOCH_FILE,
    MASKS_FILE,
    MODEL_FILE,
    RESULT_FILE,
    RESULT_FILES,
    STAGE_FILE,
    check_finished,
    check_other_parts,
    check_replaceable,
    config_beside,
    discard_parts,
    is_of_earlier_run,
    model_file,
    prepare_folder,
    reading_one_run,
    replacing,
    start_run,
    verified,
    write_run,
    writing_to,
)
from chita.files.run_manifest import Manifest
from tests.support.messages import naming
from tests.support.runs import finished_run


def test_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("error", [ChitaError, KeyboardInterrupt])
def test_a_failed_run_leaves_no_empty_folder(tmp_path: Path, error: type[BaseException]) -> None:
    """Only folders that the run made are removed, and none with files."""
    (tmp_path / "old").mkdir()
    new = tmp_path / "old" / "new" / "run"
    for folder in (tmp_path / "old", new):
        with pytest.raises(error), writing_to(folder), writing_to(folder):
            raise error
        assert list(tmp_path.rglob("*")) == [tmp_path / "old"]
    with pytest.raises(error), writing_to(new):
        (new / STAGE_FILE).touch()
        raise error
    assert (new / STAGE_FILE).exists()


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    for out in (file, file / "run"):
        with pytest.raises(ChitaError, match=naming("--out", "folder", str(out), str(file))):
            prepare_folder(out)
    assert file.read_bytes() == b"content"


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


def check(folder: Path, *, overwrite: bool = False, inputs: tuple[Path, ...] = ()) -> None:
    check_replaceable(folder, RESULT_FILES, inputs=inputs, overwrite=overwrite)


def test_only_files_of_our_runs_are_replaced(tmp_path: Path) -> None:
    check(tmp_path)
    finished_run(tmp_path)
    check(tmp_path)
    start_run(tmp_path)
    check(tmp_path)  # of the run before
    for name in RESULT_FILES:
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(before + b" ")
        with pytest.raises(ChitaError, match=naming(str(tmp_path / name), "--overwrite")):
            check(tmp_path)
        check(tmp_path, overwrite=True)
        (tmp_path / name).write_bytes(before)
    (tmp_path / "run.json").unlink()
    with pytest.raises(ChitaError, match=naming("model.safetensors", "--overwrite")):
        check(tmp_path)


def test_no_input_is_replaced(tmp_path: Path) -> None:
    """Under any name: the file, its folder, a link of either kind; not even with overwrite."""
    run = tmp_path / "run"
    finished_run(run)
    (tmp_path / "link").symlink_to(run / MODEL_FILE)
    (tmp_path / "hard").hardlink_to(run / MODEL_FILE)
    (tmp_path / "folder").symlink_to(run)
    for given in (run / MODEL_FILE, run, tmp_path / "link", tmp_path / "hard", tmp_path / "folder"):
        with pytest.raises(ChitaError, match=naming("--out", str(given))):
            check(run, overwrite=True, inputs=(given,))
    check(run, inputs=(tmp_path / "none",))
    inside = run / "new"
    inside.mkdir()
    for given in (run, tmp_path / "folder"):
        with pytest.raises(ChitaError, match=naming("--out", str(inside), str(given))):
            check(inside, overwrite=True, inputs=(given,))
    check(inside, inputs=(run / MODEL_FILE,))


def test_what_is_not_a_regular_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MODEL_FILE)
    with pytest.raises(ChitaError, match=naming(str(tmp_path / MODEL_FILE))):
        check(tmp_path, overwrite=True)


def test_a_started_run_is_unfinished_until_its_files_are_there(tmp_path: Path) -> None:
    finished_run(tmp_path)
    check_finished(tmp_path)
    start_run(tmp_path)
    assert is_of_earlier_run(tmp_path / STAGE_FILE)
    for read in (check_finished, model_file, lambda run: model_file(run / MODEL_FILE)):
        with pytest.raises(ChitaError, match=naming(str(tmp_path), "--resume")):
            read(tmp_path)
    with pytest.raises(ChitaError, match=naming(str(tmp_path), "--resume")):
        config_beside(tmp_path / "other.safetensors")
    (tmp_path / STAGE_FILE).write_bytes(b"other stages")
    assert not is_of_earlier_run(tmp_path / STAGE_FILE)
    finished_run(tmp_path)
    assert model_file(tmp_path) == tmp_path / MODEL_FILE
    assert not is_of_earlier_run(tmp_path / STAGE_FILE)


def test_parts_of_an_earlier_run_go_with_its_files(tmp_path: Path) -> None:
    """A run that has no parts, such as one of recover, leaves none."""
    finished_run(tmp_path)
    with writing_to(tmp_path):
        start_run(tmp_path)
        with replacing(tmp_path) as new:
            write_run(new, nn.Linear(3, 2), {}, config={}, record={})
    assert {path.name for path in tmp_path.iterdir()} == {*RESULT_FILES, "run.json"}
    check_finished(tmp_path)


def test_a_new_folder_has_no_manifest(tmp_path: Path) -> None:
    """So that the folder of `chita.prune` has one file."""
    (tmp_path / STAGE_FILE).touch()
    start_run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [STAGE_FILE]


@pytest.mark.parametrize("name", [MODEL_FILE, MASKS_FILE, CONFIG_FILE, RESULT_FILE])
def test_a_damaged_or_missing_file_is_refused(name: str, tmp_path: Path) -> None:
    finished_run(tmp_path)
    path = tmp_path / name
    content = path.read_bytes()
    for damaged in (content[:-1], content + b"\n", b"", bytes([content[0] ^ 1]) + content[1:]):
        path.write_bytes(damaged)
        with pytest.raises(ChitaError, match=naming(str(path), "run.json")):
            verified(path)
    path.unlink()
    with pytest.raises(ChitaError, match=naming(str(path), "run.json")):
        verified(path)
    (tmp_path / "run.json").unlink()
    assert verified(path) == path


def test_unfinished_parts_of_another_command_are_not_given_up(tmp_path: Path) -> None:
    (tmp_path / EPOCH_FILE).write_bytes(b"epochs")
    check_other_parts(tmp_path, kept=EPOCH_FILE)
    for kept in (None, STAGE_FILE):
        with pytest.raises(ChitaError, match=naming(EPOCH_FILE, "--overwrite")):
            check_other_parts(tmp_path, kept=kept)
    discard_parts(tmp_path, kept=EPOCH_FILE)
    assert (tmp_path / EPOCH_FILE).exists()
    discard_parts(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_a_run_replaces_while_it_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not damaged, but of the next run, or of an unfinished one."""
    finished_run(tmp_path)
    model, matches = tmp_path / MODEL_FILE, Manifest.matches

    def meanwhile(work: Callable[[], None]) -> None:
        def late(manifest: Manifest, path: Path) -> bool:
            monkeypatch.setattr(Manifest, "matches", matches)
            work()
            return manifest.matches(path)

        monkeypatch.setattr(Manifest, "matches", late)

    meanwhile(lambda: finished_run(tmp_path))
    assert verified(model) == model

    def begin() -> None:
        start_run(tmp_path)
        model.write_bytes(b"new")

    meanwhile(begin)
    with pytest.raises(ChitaError, match=naming(str(tmp_path), "--resume")):
        verified(model)


def test_files_of_two_runs_are_not_read_together(tmp_path: Path) -> None:
    with reading_one_run(tmp_path):
        pass
    for work in (finished_run, finished_run, start_run):
        with pytest.raises(ChitaError, match=naming(str(tmp_path))), reading_one_run(tmp_path):
            work(tmp_path)
