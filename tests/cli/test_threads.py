"""The threads of torch, which only the command line sets."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from chita.cli import threads
from chita.cli.app import app
from chita.cli.threads import limit_threads
from tests.support.messages import says

COMMANDS = ["bench", "demo", "gradual", "prune", "recover", "sensitivity", "speed", "train"]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of threads that the command line sets; torch has 8 by default."""
    numbers: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return numbers


@pytest.mark.parametrize(("available", "number"), [(1, 1), (3, 3), (8, 8), (64, 8)])
def test_threads_are_limited_to_the_cpus(
    available: int, number: int, chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "available_cpus", lambda: available)
    limit_threads()
    assert chosen == [number]


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_the_environment_comes_first(
    name: str, chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "5")
    limit_threads()
    assert chosen == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_computes_has_the_option(command: str, chosen: list[int]) -> None:
    words = [command, *(["no-such-model"] * (command not in ("demo", "bench"))), "--threads", "0"]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert says(done.output, "--threads", "1")


def test_the_option_comes_before_the_default(
    chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "available_cpus", lambda: 2)
    CliRunner().invoke(app, ["prune", "no-such-model", "--threads", "3"])
    assert chosen == [2, 3]
