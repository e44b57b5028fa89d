"""The command line: train, data, and what all commands have in common."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

import chita
from chita.cli import app as cli
from chita.cli.app import app, main
from chita.errors import ChitaError
from tests.support.messages import naming, says


@pytest.mark.slow
@pytest.mark.parametrize("out", [None, "network.safetensors"])
def test_train_writes_a_checkpoint_that_prune_takes(
    out: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = tmp_path / (out or "mlpnet.safetensors")
    arguments = ["train", "mlpnet", "--data", "mnist-slice", "--epochs", "1"]
    arguments += ["--out", out] if out else []
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert target.name in done.stdout
    pruned = CliRunner().invoke(
        app,
        ["prune", "mlpnet", "--checkpoint", str(target), "--data", "mnist-slice", "--json",
         "--method", "magnitude"],
        catch_exceptions=False,
    )  # fmt: skip
    assert json.loads(pruned.stdout.splitlines()[-1])["dense_accuracy"] > 85


@pytest.fixture
def handler() -> Iterator[None]:
    """What Ctrl-C does, given back to the tests."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("handler")
def test_errors_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brackets are no markup."""
    name = "chita[plots] and [/b].safetensors"
    monkeypatch.setattr(sys, "argv", ["chita", "prune", "mlpnet", "--checkpoint", name])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert name in capsys.readouterr().err


@pytest.mark.usefixtures("handler")
def test_ctrl_c_again_and_again_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is answered; what Python does after that may be cut short without a word."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["chita", "--version"])
    monkeypatch.setattr(cli, "show", interrupted)
    with pytest.raises(SystemExit, match="130"):
        main()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL


@pytest.mark.slow
def test_module_reports_errors_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "chita", "prune", "lenet"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert says(line, "error", "lenet", "mlpnet")


def test_version() -> None:
    done = CliRunner().invoke(app, ["--version"], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stdout == f"chita {chita.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", "get", "svhn"], "svhn"),
        (
            ["train", "mlpnet", "--data", "cifar10"],
            naming("--data", "mnist", "mnist-slice", "cifar10"),
        ),
        (["train", "mlpnet", "--out", "weights.pt"], naming(".safetensors", "weights.pt")),
        (
            ["train", "mlpnet", "--out", "nowhere/weights.safetensors"],
            naming("nowhere", "weights.safetensors"),
        ),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.fixture
def tensors(tmp_path: Path) -> Path:
    path = tmp_path / "tensors.safetensors"
    safetensors.torch.save_file({"\x1b[2Jw": torch.eye(3)}, path)
    return path


def run_main(*words: object, **streams: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "chita", *map(str, words)],
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "300"},
        **streams,
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
@pytest.mark.parametrize("words", [["inspect"], ["inspect", "--json"], ["--version"]])
def test_output_on_a_full_disk_is_an_error_in_one_line(words: list[str], tensors: Path) -> None:
    arguments = [*words, tensors] if words[0] == "inspect" else words
    with Path("/dev/full").open("w") as full:
        done = run_main(*arguments, stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert says(line, "error", "No space left on device")
        assert run_main(*arguments, stdout=full, stderr=full).returncode == 1


@pytest.mark.slow
def test_names_of_tensors_are_no_commands_to_the_terminal(tensors: Path) -> None:
    listed = run_main("inspect", tensors, capture_output=True)
    assert r"\x1b[2Jw" in listed.stdout and "\x1b[2J" not in listed.stdout
    refused = run_main("prune", "mlpnet", "--checkpoint", tensors, capture_output=True)
    assert r"\x1b[2Jw" in refused.stderr and "\x1b[2J" not in refused.stderr


def ask_torch() -> None:
    torch.empty(10**15)


def ask_numpy() -> None:
    np.empty(10**13)


def ask_python() -> None:
    raise MemoryError


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize(
    ("ask", "size"), [(ask_torch, "4e+03 TB"), (ask_numpy, "80 TB"), (ask_python, "memory")]
)
def test_too_little_memory_is_one_line_with_what_was_needed(
    ask: Callable[[], None],
    size: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["chita", "--version"])
    monkeypatch.setattr(cli, "show", lambda *_: ask())
    with pytest.raises(SystemExit, match="1"):
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert says(line, "error", "memory", size)


@pytest.mark.usefixtures("handler")
def test_a_fault_of_chita_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(sys, "argv", ["chita", "--version"])
    monkeypatch.setattr(cli, "show", fail)
    with pytest.raises(RuntimeError, match="a fault"):
        main()


@pytest.mark.usefixtures("handler")
def test_a_name_that_is_too_long_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["chita", "inspect", "a" * 300])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert says(capsys.readouterr().err, "error", "a" * 300)
