"""Killed (SIGKILL) at any moment and resumed, `chita prune` ends with the same bytes.

The processes are forked from a server that has chita loaded already: real ones, but quick to start.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from chita.cli.app import app
from chita.pruning.resume import StageFile
from tests.support.messages import says
from tests.support.processes import quick_context

STAGES = 8
ARGUMENTS = [
    "prune", "mlpnet", "--sparsity", "0.95", "--stages", str(STAGES), "--samples", "80",
    "--batch", "4", "--device", "cpu",
]  # fmt: skip
LEFT = {
    "model.safetensors", "masks.safetensors", "config.yaml", "result.json", "run.json",
    StageFile.file,
}  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "forkserver" not in multiprocessing.get_all_start_methods(), reason="needs POSIX processes"
    ),
]


def run(out: Path, kill_at: tuple[str, int] | None = None) -> None:
    """`chita prune --resume` in this process, which may kill itself."""
    if kill_at is not None:
        die_in(*kill_at)
    with redirect_stdout(io.StringIO()):
        app([*ARGUMENTS, "--out", str(out), "--resume"])


def die_in(name: str, call: int) -> None:
    """Kill this process at that call of a method of Path, with its work done by half."""
    method, left = getattr(Path, name), call

    def dying(self: Path, *arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left:
            return method(self, *arguments)
        if name == "write_bytes":
            method(self, arguments[0][: len(arguments[0]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    setattr(Path, name, dying)


def start(out: Path, kill_at: tuple[str, int] | None = None) -> Any:
    process = quick_context().Process(target=run, args=(out, kill_at))
    process.start()
    return process


def finished_stages(out: Path) -> int:
    return (StageFile.done(out) or (0, STAGES))[0]


def wait_for_stage(process: Any, out: Path, stage: int) -> None:
    while process.is_alive() and finished_stages(out) < stage:
        time.sleep(0.01)


def finish(out: Path) -> float:
    """Seconds that a run took which was left alone."""
    process, began = start(out), time.perf_counter()
    process.join()
    assert process.exitcode == 0
    return time.perf_counter() - began


def outcome(out: Path) -> tuple[bytes, bytes]:
    assert {path.name for path in out.iterdir()} == LEFT
    return (out / "model.safetensors").read_bytes(), (out / "masks.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The folder of a run that was left alone, and the seconds it took with all loaded."""
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(folder / "first")  # starts the server
    return folder / "first", finish(folder / "second")


def test_at_ten_random_moments(undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    truth, seconds = undisturbed
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    kills, progress = 0, []
    while kills < 10:
        process = start(tmp_path)
        if kills % 2:  # after one more stage, however slow the machine is by now
            wait_for_stage(process, tmp_path, finished_stages(tmp_path) + 1)
            process.join(moments.uniform(0, seconds / STAGES))
        else:
            process.join(moments.uniform(0, seconds))
        process.kill()
        process.join()
        if process.exitcode == 0:  # it was done before: begin again with the next folder
            assert outcome(tmp_path) == outcome(truth), seed
            (tmp_path / StageFile.file).unlink()
            continue
        assert process.exitcode == -signal.SIGKILL
        kills += 1
        progress.append(StageFile.done(tmp_path))
    finish(tmp_path)
    assert outcome(tmp_path) == outcome(truth), seed
    assert any(progress), (seed, progress)  # some kills came after the first stage


@pytest.mark.parametrize(
    ("moment", "finished"),
    [
        (("write_bytes", 1), 0),  # half of the first stage
        (("replace", 3), 2),  # all of the third, but not yet in its place
        (("write_bytes", STAGES + 2), STAGES),  # the pruned model, and half of its masks
    ],
)
def test_while_files_are_written(
    moment: tuple[str, int], finished: int, undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    process = start(tmp_path, moment)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert StageFile.done(tmp_path) == ((finished, STAGES) if finished else None)
    finish(tmp_path)
    assert outcome(tmp_path) == outcome(undisturbed[0])


@pytest.mark.parametrize("kept", [True, False])
def test_ctrl_c_says_how_to_go_on(kept: bool, tmp_path: Path) -> None:
    """A process of its own, interrupted as soon as a stage is done, or early on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chita", "-v", *ARGUMENTS, "--stages", "500"]
        + (["--out", str(tmp_path)] if kept else []),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert process.stderr is not None
    for line in process.stderr:  # the log of a stage
        if "StageRow" in line:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == ""
    last = stderr.splitlines()[-1]
    done = StageFile.done(tmp_path)
    if kept:
        assert done is not None and 1 <= done[0] < 500
        assert says(last, f"stage {done[0]}", 500, "--resume")
    else:
        assert done is None
        assert says(last, re.compile("[Ii]nterrupt")) and "--resume" not in last
