"""The stress benchmark, in small: a disturbed run for each fault, and some damaged files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).parents[1] / "benchmarks/faults.py"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX processes")
def test_nothing_is_lost_stale_or_read_wrongly() -> None:
    command = [sys.executable, FAULTS, "--quick", "--cases", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("kill in a write", "signal", "full disk", "two runs", "packed files", "folders"):
        assert part in done.stdout
