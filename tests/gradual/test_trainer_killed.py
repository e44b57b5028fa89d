"""Killed (SIGKILL) in any epoch and resumed, `chita gradual` ends with the same bytes.

The processes are forked from a server that has chita loaded already: real ones, but quick to start.
"""

import io
import multiprocessing
import os
import random
import signal
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch

from chita.cli.app import app
from chita.gradual.epoch_file import EpochFile
from tests.support.processes import quick_context

EPOCHS, STEPS = 6, 34  # of 17,000 images in batches of 500
RECIPE = f"""
epochs: {EPOCHS}
batch_size: 500
learning_rate: 0.05
pruning_steps: 3
pruning_interval: 0.34
methods: {{chita-bso: {{samples: 50, batch: 1, ridge: 0.001}}}}
"""
LEFT = {
    "model.safetensors", "masks.safetensors", "config.yaml", "result.json", "history.csv",
    "history.png", EpochFile.file, "run.json",
}  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "forkserver" not in multiprocessing.get_all_start_methods(), reason="needs POSIX processes"
    ),
]
Moment = tuple[str, int]  # the number of a step, or of a file that is being written


def run(out: Path, recipe: Path, moment: Moment | None) -> None:
    """`chita gradual --resume` in this process, which may kill itself."""
    if moment is not None:
        owner, name = {"step": (torch.optim.SGD, "step"), "write": (Path, "write_bytes")}[moment[0]]
        die_in(owner, name, moment[1])
    with redirect_stdout(io.StringIO()):
        app([
            "gradual", "mlpnet", "--sparsity", "0.95", "--recipe", str(recipe), "--device", "cpu",
            "--out", str(out), "--resume",
        ])  # fmt: skip


def die_in(owner: type, name: str, call: int) -> None:
    """Kill this process at that call of a method; a file is then written by half."""
    method, left = getattr(owner, name), call

    def dying(self: Any, *arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left:
            return method(self, *arguments)
        if owner is Path:
            method(self, arguments[0][: len(arguments[0]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    setattr(owner, name, dying)


def exit_code(out: Path, recipe: Path, moment: Moment | None = None) -> int | None:
    process = quick_context().Process(target=run, args=(out, recipe, moment))
    process.start()
    process.join()
    return process.exitcode


def outcome(out: Path) -> tuple[bytes, bytes]:
    assert {path.name for path in out.iterdir()} == LEFT
    return (out / "model.safetensors").read_bytes(), (out / "masks.safetensors").read_bytes()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "recipe.yaml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was left alone."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert exit_code(folder, recipe) == 0
    return folder


def test_at_random_steps(recipe: Path, undisturbed: Path, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    moments, progress = random.Random(seed), 0
    while progress < EPOCHS - 2:  # about four kills
        step = moments.randint(1, 3 * STEPS)
        if (code := exit_code(tmp_path, recipe, ("step", step))) == 0:
            break
        assert code == -signal.SIGKILL
        progress += (step - 1) // STEPS  # what it had begun is lost, what it had finished is not
        assert EpochFile.done(tmp_path) == ((progress, EPOCHS) if progress else None), seed
    assert exit_code(tmp_path, recipe) == 0
    assert outcome(tmp_path) == outcome(undisturbed), seed


@pytest.mark.parametrize(
    ("write", "finished"), [(3, 2), (EPOCHS + 2, EPOCHS)]
)  # half of an epoch, half of the masks
def test_while_files_are_written(
    write: int, finished: int, recipe: Path, undisturbed: Path, tmp_path: Path
) -> None:
    assert exit_code(tmp_path, recipe, ("write", write)) == -signal.SIGKILL
    assert EpochFile.done(tmp_path) == (finished, EPOCHS)
    assert exit_code(tmp_path, recipe) == 0
    assert outcome(tmp_path) == outcome(undisturbed)
