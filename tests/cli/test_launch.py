"""The command line under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import safetensors.torch
import torch

from chita.cli import launch
from chita.cli.launch import Output, first_rank_first, launched, resumable
from chita.errors import ChitaError
from chita.files.run_folder import RESULT_FILES
from chita.pruning.resume import StageFile
from chita.solver.ranks import ALONE, Ranks, joined_ranks
from tests.files.test_folder_lock import in_thread
from tests.support.command import invoke
from tests.support.gloo import on_ranks
from tests.support.messages import naming, says

pytestmark = pytest.mark.slow

PRUNE = ["prune", "mlpnet", "--stages", "2", "--samples", "60", "--batch", "2", "--json"]
PRUNE += ["--ridge", "0.01", "--device", "cpu"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def on_two_ranks(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TORCHRUN, "-m", "chita", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_two_ranks_do_what_one_process_does(tmp_path: Path) -> None:
    staged = [*PRUNE, "--method", "chita++"]  # auto has no objective where it goes half the way
    one = invoke(*staged, "--out", str(tmp_path / "one"))
    two = on_two_ranks(*staged, "--out", str(tmp_path / "two"))
    assert two.returncode == 0, two.stderr
    assert sum(line.startswith("{") for line in two.stdout.splitlines()) == 1  # rank 0 alone speaks
    ours, theirs = (json.loads(said.splitlines()[-1]) for said in (two.stdout, one))
    assert ours["nonzeros"] == theirs["nonzeros"]
    assert ours["objective"] == pytest.approx(theirs["objective"], rel=1e-3)
    assert abs(ours["accuracy"] - theirs["accuracy"]) < 1
    model, other = (
        safetensors.torch.load_file(tmp_path / name / "model.safetensors")
        for name in ("one", "two")
    )
    differing = sum(int(((model[key] != 0) != (other[key] != 0)).sum()) for key in model)
    assert differing <= 1e-3 * ours["weights"]


def test_an_error_ends_all_ranks_with_its_message(tmp_path: Path) -> None:
    run = on_two_ranks(*PRUNE, "--method", "m-fac")
    assert run.returncode != 0
    assert says(run.stderr, "m-fac", "2 ranks", without="StageRow")


def fetched(rank: int, folder: str) -> bool:
    def fetch() -> bool:
        file = Path(folder) / "data"
        if rank == 0:
            time.sleep(0.5)
            file.touch()
        return file.exists()

    with joined_ranks() as ranks:
        return first_rank_first(ranks, fetch)


def test_rank_0_fetches_what_the_others_find(tmp_path: Path) -> None:
    assert on_ranks(2, fetched, str(tmp_path)) == [True, True]


def test_without_torchrun_there_is_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with launched("cpu") as (ranks, device):
        assert (ranks, device) == (ALONE, torch.device("cpu"))
        assert first_rank_first(ranks, lambda: "fetched") == "fetched"


@pytest.fixture
def used_gpus(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The devices that are made current or allocated on, with two GPUs that do not exist."""
    used: list[torch.device] = []

    def empty(size: int, *, device: torch.device) -> torch.Tensor:
        used.append(device)
        return torch.zeros(size)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", used.append)
    monkeypatch.setattr(torch, "empty", empty)
    return used


@pytest.mark.parametrize(("local_rank", "gpu"), [("1", "cuda:1"), ("2", "cuda:0")])
@pytest.mark.parametrize("device", [None, "cuda"])
def test_a_rank_uses_only_its_own_gpu(
    device: str | None,
    local_rank: str,
    gpu: str,
    used_gpus: list[torch.device],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = {"WORLD_SIZE": "4", "RANK": "1", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": local_rank}
    for name, value in size.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ChitaError, match="MASTER_ADDR"), launched(device):
        pass
    assert used_gpus == [torch.device(gpu)] * 2


def test_a_gpu_with_a_number_becomes_the_current_one(used_gpus: list[torch.device]) -> None:
    assert launch.pick_device("cuda:1") == torch.device("cuda", 1)
    assert used_gpus == [torch.device("cuda", 1)] * 2
    used_gpus.clear()
    launch.pick_device(None)
    assert used_gpus == [torch.device("cuda")]


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_alone_locks_the_folder(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke(*PRUNE, "--method", "magnitude", "--out", str(tmp_path))

    @contextmanager
    def one_of_two(device: str | None) -> Iterator[tuple[Ranks, torch.device]]:
        ranks = Ranks()
        ranks.rank = rank
        yield ranks, torch.device("cpu")

    monkeypatch.setattr(launch, "launched", one_of_two)
    output = Output(tmp_path, RESULT_FILES, [], overwrite=False)
    with resumable(StageFile, output, resume=False, device="cpu"):
        assert bool(in_thread(tmp_path)) == (rank == 0)
        assert StageFile.done(tmp_path) == (2, 2)  # until the new run begins


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({"WORLD_SIZE": "two"}, ("WORLD_SIZE", "two")),
        ({"WORLD_SIZE": ""}, ("WORLD_SIZE",)),
        ({"WORLD_SIZE": "0"}, ("WORLD_SIZE", "0")),
        ({"WORLD_SIZE": "-1"}, ("WORLD_SIZE", "-1")),
        ({"WORLD_SIZE": "2.0"}, ("WORLD_SIZE", "2.0")),
        ({"WORLD_SIZE": "2"}, ("RANK",)),
        ({"WORLD_SIZE": "2", "RANK": "1"}, ("MASTER_ADDR",)),
        ({"WORLD_SIZE": "2", "RANK": "x"}, ("RANK", "x")),
        (
            {"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555"},
            ("RANK", "2"),
        ),
    ],
)
def test_wrong_variables_of_torchrun_are_named(
    variables: dict[str, str], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ChitaError, match=naming(*names, "torchrun")), launched("cpu"):
        pass
