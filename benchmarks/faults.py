"""Runs under faults, and damaged files: whether anything is lost, stale or read wrongly.

Runs of `chita prune`, `recover` and `gradual`, on the embedded MLPNet and a few of its images, are
disturbed: killed at random moments and inside random writes, stopped by signals, started on a full
disk, and started twice in one folder. Half of the folders contain a finished run with other options
before. After every fault, the folder must be refused as unfinished, or contain all files of one
run. The run is then resumed, and must end with the bits of an undisturbed one.

Packed files and run folders are changed at random, also such that their digests are right. They
must be refused, or give what was written, within 2 seconds and with at most twice the memory of
their content.

    python benchmarks/faults.py [--cases 200] [--packed 20000] [--folders 2000] [--seed 0]
    python benchmarks/faults.py --quick

It exits with 1 if anything went wrong, and prints how to repeat it.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # a forked process cannot use the threads of its parent

import random
import shutil
import sys
import tempfile
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from disturbed_runs import Bench, Case, Run, check_end
from fuzzed_files import fuzz_folders, fuzz_packed
from injected_faults import FAULTS

from chita import data
from chita.data import Splits
from chita.errors import ChitaError
from chita.files.run_folder import EPOCH_FILE, MASKS_FILE, MODEL_FILE, STAGE_FILE, model_file
from chita.pruning.recovery.recover import recover
from chita.report.figures import as_png, new_figure
from chita.zoo import network_data

IMAGES = 600  # for training and calibration, and half as many to test on


def main() -> None:
    """Run all three parts and print a table of each."""
    parser = ArgumentParser(description="Runs under faults, and damaged files.")
    parser.add_argument("--cases", type=int, default=200, help="number of disturbed runs")
    parser.add_argument("--packed", type=int, default=20_000, help="number of packed files")
    parser.add_argument("--folders", type=int, default=2_000, help="number of run folders")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices")
    parser.add_argument("--quick", action="store_true", help="10 runs, 300 files and 60 folders")
    given = parser.parse_args()
    if given.quick:
        given.cases, given.packed, given.folders = 10, 300, 60
    torch.set_num_threads(1)
    as_png(new_figure())  # loads matplotlib once for all runs,
    torch.optim.SGD([torch.zeros(1)], lr=1.0)  # and parts of torch
    with tempfile.TemporaryDirectory() as scratch, small_data(), leaving_sign(Path(scratch)):
        bench = Bench(Path(scratch))
        wrong = disturb(bench, given.cases, given.seed)
        folders = [job.truth for job in bench.jobs if job.name in ("prune", "gradual")]
        wrong += fuzz_packed(given.packed, given.seed)
        wrong += fuzz_folders(folders, given.folders, given.seed, Path(scratch))
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


@contextmanager
def small_data() -> Iterator[None]:
    """Let the runs of this process read few of the embedded images."""
    whole = data.load("mnist-slice")

    def first(images: Any, count: int) -> Any:
        return replace(images, images=images.images[:count], labels=images.labels[:count])

    few = Splits(first(whole.train, IMAGES), first(whole.test, IMAGES // 2))
    with mock.patch.object(network_data, "load", lambda *_, **__: few):
        yield


@contextmanager
def leaving_sign(scratch: Path) -> Iterator[None]:
    """Let the training of `chita recover`, which stores no parts, create a file when it begins."""

    def begin(*arguments: Any, **keywords: Any) -> Any:
        (scratch / "begun").touch()
        return recover(*arguments, **keywords)

    with mock.patch("chita.cli.recover.recover", begin):
        yield


def disturb(bench: Bench, cases: int, seed: int) -> list[str]:
    """Disturb runs, resume each, print a table, and return what went wrong."""
    wrong: list[str] = []
    counts: Counter[tuple[str, str]] = Counter()
    for number in range(cases):
        chance = random.Random(f"{seed} {number}")
        job, fault = bench.jobs[number % len(bench.jobs)], [*FAULTS][number % len(FAULTS)]
        case = Case(job, bench.scratch / "out", chance, reused=chance.random() < 0.5)
        shutil.rmtree(case.out, ignore_errors=True)
        case.out.mkdir()
        case.sign.unlink(missing_ok=True)
        if case.reused:
            shutil.copytree(job.before, case.out, dirs_exist_ok=True)
        found = FAULTS[fault](case) or check_folder(case) or check_resumed(case)
        counts[fault, "wrong" if found else "right"] += 1
        if found:
            wrong.append(f"case {number} of seed {seed}, {job.name}, {fault}: {found}")
    print(f"\n{'fault':18s} {'runs':>5s} {'wrong':>6s}")
    for fault in FAULTS:
        failed = counts[fault, "wrong"]
        print(f"{fault:18s} {failed + counts[fault, 'right']:5d} {failed:6d}", flush=True)
    return wrong


def check_folder(case: Case) -> str:
    """Check that a folder is refused, or contains all files of one run."""
    try:
        found = model_file(case.out)
    except ChitaError:
        return ""
    if not found.exists():
        return ""
    if same(case.out, case.job.truth, MODEL_FILE, MASKS_FILE):
        return ""
    # A run that has begun has deleted the parts of the run before, or left a sign.
    parts = [name for name in (STAGE_FILE, EPOCH_FILE) if (case.job.before / name).exists()]
    begun = case.sign.exists()
    if (
        case.reused
        and not begun
        and same(case.out, case.job.before, MODEL_FILE, MASKS_FILE, *parts)
    ):
        return ""
    return "the folder has neither the old files nor the new ones, or is stale"


def check_resumed(case: Case) -> str:
    """Resume the run, as its message says, and compare its end with an undisturbed run."""
    options: list[list[str]] = [["--resume"], []] if case.job.resumes else [[]]
    for more in options:
        run = Run([*case.job.arguments, *more], case.out)
        code = run.wait()
        if found := check_end(run, code, (0, 1)):
            return f"resumed: {found}"
        if code == 0:
            break
    else:
        return "the run could neither be resumed nor started again"
    left = [path.name for path in case.out.iterdir() if path.name.startswith(".")]
    if left:
        return f"files are left: {left}"
    if same(case.out, case.job.truth, MODEL_FILE, MASKS_FILE):
        return ""
    return "the end differs from the undisturbed run"


def same(one: Path, other: Path, *names: str) -> bool:
    """Return whether two folders have the same files of these names, bit for bit."""
    files = [(one / name, other / name) for name in names]
    return all(
        left.exists() and right.exists() and left.read_bytes() == right.read_bytes()
        for left, right in files
    )


if __name__ == "__main__":
    main()
