"""The CPU time of `chita demo`, alone and beside busy processes.

Threads that spin while they wait for each other take many times the CPU time if other processes
keep some of them from running. On the command line they sleep, so that the two times differ little.
The program exits with status 1 if the ratio is above 3.

    python benchmarks/busy.py [--busy 4] [--threads 2]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

MOST = 3.0  # times as much CPU time
BUSY = "while True: sum(range(10_000))"


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run processes that do nothing but compute."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cpu_seconds(threads: int) -> tuple[float, float]:
    """Run the demo; return its CPU time and its wall-clock time, in seconds."""
    before, began = _used(), perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "chita", "demo", "--out", folder]
        subprocess.run([*command, "--threads", str(threads)], check=True, stdout=subprocess.DEVNULL)
    return _used() - before, perf_counter() - began


def _used() -> float:
    """Return the CPU time of all processes that have ended and were waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    alone, wall = cpu_seconds(options.threads)
    print(f"alone: {alone:.0f} s of CPU time in {wall:.0f} s")
    with busy_processes(options.busy):
        beside, wall = cpu_seconds(options.threads)
    print(f"beside {options.busy} busy processes: {beside:.0f} s of CPU time in {wall:.0f} s")
    print(f"ratio {beside / alone:.2f}, at most {MOST:g}")
    sys.exit(beside > MOST * alone)


if __name__ == "__main__":
    main()
