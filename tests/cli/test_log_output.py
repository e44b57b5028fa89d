"""What a command writes to a standard error that is not a terminal, such as a log file."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from chita.cli.log_output import PrintableFormatter
from tests.support.messages import says

PROMPT = (
    "import sys; from chita.pruning import forecast; forecast.LONG = forecast.EVERY = 0.0; "
    "from chita.__main__ import main; main()"
)
PRUNE = ("prune", "mlpnet", "--device", "cpu", "--sparsity", "0.5", "--budget", "20 steps")


def test_log_messages_are_printable() -> None:
    record = logging.LogRecord("chita", logging.INFO, "", 0, "name %s", ("\x1b[2J",), None)
    assert PrintableFormatter("%(message)s").format(record) == r"name \x1b[2J"


def errors_of(*words: str, **environment: str) -> list[str]:
    """The lines on standard error of a run for which every time is long."""
    known = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    done = subprocess.run(
        [sys.executable, "-c", PROMPT, *words],
        env={**known, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.splitlines()


@pytest.mark.slow
def test_a_long_run_writes_its_size_its_time_and_its_stages() -> None:
    lines = errors_of(*PRUNE)
    (size,) = [line for line in lines if says(line, "weights", "samples", "budget='fast'")]
    assert says(size, "about", "stages")
    assert any(says(line, "stage 1 of", "recovery", "left") for line in lines)
    assert all(line.startswith("[") and "INFO" in line for line in lines)


@pytest.mark.slow
def test_only_rank_0_writes_them() -> None:
    assert errors_of(*PRUNE, RANK="1") == []
