"""What the commands do with the folder of --out: nothing is lost, and nothing stale is read."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from chita.errors import ChitaError
from chita.files.checkpoint import save_checkpoint
from chita.files.folder_lock import lock
from chita.files.run_folder import start_run
from chita.pruning import stage
from tests.files.test_folder_lock import in_thread
from tests.support.command import invoke
from tests.support.messages import naming
from tests.support.pruning import mlpnet

PRUNE = ("prune", "mlpnet", "--method", "magnitude", "--device", "cpu")
RECIPE = "epochs: 2\nbatch_size: 2000\nlearning_rate: 0.05\npruning_steps: 1\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run at 50 %."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    invoke(*PRUNE, "--sparsity", "0.5", "--out", folder)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def gradual(tmp_path: Path) -> tuple[object, ...]:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return ("gradual", "mlpnet", "--recipe", tmp_path / "recipe.yaml", "--device", "cpu",
            "--method", "global-magnitude")  # fmt: skip


def zeros(folder: Path) -> int:
    tensors = load_file(folder / "model.safetensors")
    return sum(int((tensor == 0).sum()) for tensor in tensors.values())


def interrupted(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    """A command that ends in its first stage, as if it was killed."""

    def stop(*_: Any, **__: Any) -> None:
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr(stage.Stage, "run", stop)
        with pytest.raises(AssertionError):
            invoke(*arguments)


def test_the_only_dense_weights_are_not_overwritten(tmp_path: Path) -> None:
    """By prune, gradual or recover, with or without --overwrite and --resume."""
    out = tmp_path / "dense"
    out.mkdir()
    save_checkpoint(mlpnet(), out / "model.safetensors")
    before = content(out)
    options = ("--data", "mnist-slice", "--out", out)
    for command in (PRUNE, gradual(tmp_path)):
        for checkpoint in (out / "model.safetensors", out):
            for more in ((), ("--overwrite",), ("--overwrite", "--resume")):
                with pytest.raises(ChitaError, match=naming("--out", str(out))):
                    invoke(*command, "--checkpoint", checkpoint, *options, *more)
                assert content(out) == before


def test_the_teacher_is_not_overwritten(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    save_checkpoint(mlpnet(), out / "model.safetensors")
    with pytest.raises(ChitaError, match=naming("--out", str(out))):
        invoke("recover", run, "--teacher", out / "model.safetensors", "--out", out, "--overwrite")


@pytest.mark.parametrize("out", ["", " "])
@pytest.mark.parametrize(
    "command", [PRUNE, ("gradual", "mlpnet"), ("demo",), ("bench", "ridge"), ("recover", "mlpnet")]
)
def test_an_empty_folder_is_refused(
    out: str, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=naming("--out", repr(out))):  # of the exit code
        invoke(*command, "--out", out)
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_user_need_overwrite(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ChitaError, match=naming("config.yaml", "--overwrite")):
        invoke(*PRUNE, "--out", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "notes.txt"}
    assert (tmp_path / "config.yaml").read_text() == "mine"
    invoke(*PRUNE, "--out", tmp_path, "--overwrite")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    invoke(*PRUNE, "--sparsity", "0.5", "--out", tmp_path)  # now they are ours
    assert zeros(tmp_path) == 32360 // 2


def test_sensitivity_needs_overwrite_too(tmp_path: Path) -> None:
    (tmp_path / "sensitivity.csv").write_text("mine")
    with pytest.raises(ChitaError, match=naming("sensitivity.csv", "--overwrite")):
        invoke("sensitivity", "mlpnet", "--out", tmp_path)


def test_sensitivity_leaves_an_unfinished_run(run: Path) -> None:
    """It writes other files, and does not make the run finished."""
    (run / "stage.safetensors").write_bytes(b"parts")
    start_run(run)
    before = content(run)
    invoke("sensitivity", "mlpnet", "--samples", "20", "--out", run, "--overwrite")
    left = content(run)
    assert all(left[name] == before[name] for name in before.keys() - {"run.json"})
    with pytest.raises(ChitaError, match=naming(str(run), "--resume")):
        invoke("inspect", run)


def test_an_unfinished_run_is_unfinished_for_every_command(
    run: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(run)
    interrupted(monkeypatch, *PRUNE, "--sparsity", "0.95", "--out", run)
    model = run / "model.safetensors"
    for command in (
        ("pack", run, tmp_path / "a.safetensors"),
        ("pack", model, tmp_path / "a.safetensors"),
        ("inspect", run),
        ("inspect", model),
        ("export", run, tmp_path / "a.onnx"),
        ("export", model, tmp_path / "a.onnx"),
        ("report", run),
        ("speed", run),
        ("recover", run, "--out", tmp_path / "out"),
        ("recover", finished, "--teacher", run, "--out", tmp_path / "out"),
        ("prune", "mlpnet", "--checkpoint", run, "--data", "mnist-slice", "--device", "cpu"),
        ("sensitivity", "mlpnet", "--checkpoint", run, "--data", "mnist-slice"),
    ):
        with pytest.raises(ChitaError, match=naming(str(run))) as caught:
            invoke(*command)
        assert "--resume" in str(caught.value)
    assert not (tmp_path / "a.safetensors").exists() and not (tmp_path / "a.onnx").exists()
    left = content(run)
    assert all(left[name] == before[name] for name in left.keys() - {"run.json"})
    invoke(*PRUNE, "--sparsity", "0.95", "--out", run, "--resume")
    assert zeros(run) == round(0.95 * 32360)
    invoke("inspect", run)


def test_recover_in_a_reused_folder_is_unfinished_too(
    run: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr("chita.cli.recover.recover", stop)
        with pytest.raises(AssertionError):
            invoke("recover", finished, "--budget", "5 steps", "--device", "cpu", "--out", run)
    with pytest.raises(ChitaError, match=naming(str(run), "--resume")):
        invoke("inspect", run)
    invoke("recover", finished, "--budget", "5 steps", "--device", "cpu", "--out", run)
    assert zeros(run) == zeros(finished)
    assert not (run / "stage.safetensors").exists()  # of the run before


def test_a_refused_command_leaves_a_finished_run(run: Path, tmp_path: Path) -> None:
    before = content(run)
    for command in (
        (*PRUNE, "--out", run, "--data", "none"),
        (*PRUNE, "--out", run, "--resume", "--sparsity", "0.7"),
        ("prune", "mlpnet", "--samples", "50000", "--out", run),
        (*gradual(tmp_path), "--out", run, "--checkpoint", "none"),
        ("recover", "mlpnet", "--out", run),
    ):
        with pytest.raises(ChitaError):
            invoke(*command)
        assert content(run) == before


def test_two_runs_in_one_folder(run: Path, tmp_path: Path) -> None:
    before = content(run)
    errors: list[str] = []

    def second(*command: object) -> None:
        try:
            invoke(*command)
        except ChitaError as error:
            errors.append(str(error))

    with lock(run):
        assert in_thread(run)
        for command in (
            (*PRUNE, "--out", run),
            (*gradual(tmp_path), "--out", run),
            ("sensitivity", "mlpnet", "--out", run),
        ):
            thread = threading.Thread(target=second, args=command)
            thread.start()
            thread.join()
    assert len(errors) == 3 and all(str(run) in error for error in errors)
    assert content(run) == before


def test_another_command_leaves_nothing_of_the_run_before(run: Path, tmp_path: Path) -> None:
    invoke(*gradual(tmp_path), "--out", run)
    assert set(content(run)) == {
        "model.safetensors", "masks.safetensors", "config.yaml", "result.json", "run.json",
        "history.csv", "history.png", "epoch.pt",
    }  # fmt: skip
    invoke(*PRUNE, "--out", run)
    assert set(content(run)) == {
        "model.safetensors", "masks.safetensors", "config.yaml", "result.json", "run.json",
        "stage.safetensors",
    }  # fmt: skip


def test_overwrite_gives_up_an_unfinished_run(run: Path, tmp_path: Path) -> None:
    (run / "epoch.pt").write_bytes(b"damaged")
    with pytest.raises(ChitaError, match=naming("epoch.pt", "--overwrite")):
        invoke(*PRUNE, "--out", run)
    with pytest.raises(ChitaError, match=naming("epoch.pt", "--overwrite")):
        invoke(*gradual(tmp_path), "--out", run)
    invoke(*PRUNE, "--out", run, "--overwrite")
    assert not (run / "epoch.pt").exists()


def test_a_page_may_be_written_again_and_no_other_file(run: Path, tmp_path: Path) -> None:
    invoke("report", run)
    invoke("report", run)
    invoke(*PRUNE, "--out", run, "--report")
    assert "report.html" in content(run)
    invoke("report", run)
    invoke(*PRUNE, "--out", run)
    assert "report.html" not in content(run)  # it was of the run before
    for name in ("model.safetensors", "result.json", "run.json"):
        with pytest.raises(ChitaError, match=naming(str(run / name))):
            invoke("report", run, "--out", run / name)
    with pytest.raises(ChitaError, match=naming("/dev/null")):
        invoke("report", run, "--out", "/dev/null")
    assert not Path("/dev/null").is_file()


def test_a_file_of_the_user_needs_overwrite(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a command writes one file; a page of chita may be written again."""
    monkeypatch.chdir(tmp_path)
    dense, page = tmp_path / "mlpnet.safetensors", tmp_path / "page.html"
    save_checkpoint(mlpnet(), dense)
    invoke("pack", run, tmp_path / "packed.safetensors")
    for name in ("a.onnx", "a.json", "page.html", "ridge.md"):
        (tmp_path / name).write_text("mine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    commands: list[tuple[Path, tuple[object, ...]]] = [
        (dense, ("pack", run, dense)),
        (dense, ("unpack", tmp_path / "packed.safetensors", dense)),
        (dense, ("train", "mlpnet", "--epochs", "1")),
        (tmp_path / "a.onnx", ("export", run, tmp_path / "a.onnx")),
        (tmp_path / "a.json", ("speed", run, "--out", tmp_path / "a.json")),
        (page, ("report", run, "--out", page)),
        (tmp_path / "ridge.md", ("bench", "ridge", "--quick", "--out", tmp_path)),
    ]
    for path, command in commands:
        with pytest.raises(ChitaError, match=naming(path.name, "--overwrite")):
            invoke(*command)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert left == before
    invoke("pack", run, dense, "--overwrite")
    invoke("pack", dense, dense)  # nothing is lost
    invoke("unpack", dense, dense)
    invoke("report", run, "--out", page, "--overwrite")
    invoke("report", run, "--out", page)


def test_a_run_is_not_packed_in_place(run: Path) -> None:
    with pytest.raises(ChitaError, match=naming(str(run / "model.safetensors"))):
        invoke("pack", run, run / "model.safetensors")
    invoke("pack", run, run / "packed.safetensors")
    invoke("inspect", run)
