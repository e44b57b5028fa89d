"""The faults that `faults.py` injects into a run: kills, signals, a full disk, a second run."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

from disturbed_runs import Case, check_end

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STEPS = ("write_bytes", "replace", "rename", "unlink")  # methods of Path that change a folder

Fault = Callable[[Case], str]  # disturbs a run, and returns what is wrong with its end


def kill(case: Case) -> str:
    """Kill the run at a random moment."""
    return stop(case, signal.SIGKILL)


def stop(case: Case, number: int) -> str:
    run = case.start()
    time.sleep(case.moment())
    run.send(number)
    return check_end(run, run.wait(), (0, -number, 130))


def send_signal(case: Case) -> str:
    """Stop the run by SIGTERM, SIGINT or SIGHUP at a random moment."""
    return stop(case, case.chance.choice(SIGNALS))


def kill_in_write(case: Case) -> str:
    """Kill the run in one of its writes, after half of it."""
    name, calls = case.chance.choice(STEPS), case.chance.randint(1, 14)
    run = case.start(lambda: die_in(name, calls))
    return check_end(run, run.wait(), (0, -signal.SIGKILL))


def die_in(name: str, calls: int) -> None:
    """Kill this process at that call of a method of Path."""
    method, left = getattr(Path, name), calls

    def dying(self: Path, *arguments: Any, **keywords: Any) -> Any:
        nonlocal left
        left -= 1
        if left:
            return method(self, *arguments, **keywords)
        if name == "write_bytes":
            method(self, arguments[0][: len(arguments[0]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    setattr(Path, name, dying)


def fill_disk(case: Case) -> str:
    """Run on a disk that is too small, or with a limit on the size of files."""
    limit = case.chance.randint(1, 150) * 4096
    if not mount(case.out, limit):
        sizes = (limit, resource.RLIM_INFINITY)
        run = case.start(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, sizes))
        return check_end(run, run.wait(), (0, 1))
    try:
        run = case.start()
        return check_end(run, run.wait(), (0, 1))
    finally:
        unmount(case.out)


def mount(folder: Path, limit: int) -> bool:
    """Move the content of a folder to a file system with some bytes left; False if not allowed."""
    used = sum(-(-path.stat().st_size // 4096) * 4096 for path in folder.iterdir())
    size = f"size={used + limit + 65536}"
    kept = folder.with_name("kept")
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    shutil.copytree(folder, kept)
    done = shutil.which("mount") and subprocess.run(command, capture_output=True).returncode == 0
    if done:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
    shutil.rmtree(kept)
    return bool(done)


def unmount(folder: Path) -> None:
    """Move the content back to the disk."""
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept)
    subprocess.run(["umount", str(folder)], check=True)
    shutil.rmtree(folder)
    kept.rename(folder)


def start_twice(case: Case) -> str:
    """Start a second run in the folder of the first; their writes must not be mixed."""
    writers = case.out.with_name("writers")
    writers.unlink(missing_ok=True)
    first = case.start(lambda: log_writes(writers))
    time.sleep(case.moment())
    second = case.start(lambda: log_writes(writers))
    codes = first.wait(), second.wait()
    found = check_end(first, codes[0], (0, 1)) or check_end(second, codes[1], (0, 1))
    if found or 0 not in codes:
        return found or "both runs failed"
    in_turn = [writer for writer, _ in groupby(writers.read_text().split())]
    return "" if len(in_turn) == len(set(in_turn)) else "both runs wrote at once"


def log_writes(writers: Path) -> None:
    """Note this process in a file whenever it has written another one."""
    method = Path.replace

    def noting(self: Path, target: Path) -> Path:
        with writers.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return method(self, target)

    Path.replace = noting  # type: ignore[assignment, method-assign]


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "kill in a write": kill_in_write,
    "signal": send_signal,
    "full disk": fill_disk,
    "two runs": start_twice,
}
