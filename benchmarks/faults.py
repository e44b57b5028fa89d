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
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from fuzzed_files import fuzz_folders, fuzz_packed

from chita import data
from chita.cli import app
from chita.data import Splits
from chita.errors import ChitaError
from chita.files.run_folder import EPOCH_FILE, MASKS_FILE, MODEL_FILE, STAGE_FILE, model_file
from chita.pruning.recovery.recover import recover
from chita.report.figures import as_png, new_figure
from chita.zoo import network_data

IMAGES = 600  # for training and calibration, and half as many to test on
WAIT = 120  # seconds after which a run counts as hanging
RECIPE = """
epochs: 3
batch_size: 100
learning_rate: 0.05
pruning_steps: 2
pruning_interval: 0.34
methods: {chita-bso: {samples: 20, batch: 1, ridge: 0.001}}
"""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STEPS = ("write_bytes", "replace", "rename", "unlink")  # methods of Path that change a folder

Fault = Callable[["Case"], str]


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


@dataclass
class Job:
    """A command that is disturbed.

    Attributes:
        name: for the table.
        arguments: its arguments but for --out.
        others: arguments of a run with other options, which may be in the folder before.
        resumes: whether it has --resume.
        truth: the folder of an undisturbed run.
        before: the folder of an undisturbed run with the other options.
        seconds: the time of the undisturbed run.
    """

    name: str
    arguments: list[str]
    others: list[str]
    resumes: bool
    truth: Path
    before: Path
    seconds: float = 0.0


class Bench:
    """The jobs and their undisturbed runs."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        recipe, source = scratch / "recipe.yaml", scratch / "prune"
        recipe.write_text(RECIPE)
        bso = ["prune", "mlpnet", "--method", "chita-bso", "--stages", "3", "--samples", "30",
               "--batch", "1", "--ridge", "0.01", "--device", "cpu"]  # fmt: skip
        auto = ["prune", "mlpnet", "--budget", "6 steps", "--samples", "30", "--batch", "1",
                "--device", "cpu"]  # fmt: skip
        recover = ["recover", str(source), "--budget", "8 steps", "--device", "cpu"]
        gradual = ["gradual", "mlpnet", "--recipe", str(recipe), "--device", "cpu"]
        other = ["--sparsity", "0.5"]
        self.jobs = [
            self.job("prune", bso, [*bso, *other]),
            self.job("auto", auto, [*bso, *other]),
            self.job("recover", recover, [*recover, "--seed", "5"], resumes=False),
            self.job("gradual", gradual, [*gradual, *other]),
        ]

    def job(
        self, name: str, arguments: list[str], others: list[str], *, resumes: bool = True
    ) -> Job:
        """Run a command and its variant undisturbed."""
        job = Job(
            name, arguments, others, resumes, self.scratch / name, self.scratch / f"{name}-before"
        )
        for given, out in ((arguments, job.truth), (others, job.before)):
            began = time.perf_counter()
            run = Run(given, out)
            code = run.wait()
            assert code == 0, run.log.read_text()
            if out is job.truth:
                job.seconds = time.perf_counter() - began
        print(f"{name:8s} undisturbed: {job.seconds:.1f} s")
        return job


class Run:
    """A command in a process of its own, forked from this one.

    Args:
        arguments: of the command line.
        out: its output folder.
        prepare: called in the new process before the command.
    """

    def __init__(
        self, arguments: list[str], out: Path, prepare: Callable[[], None] | None = None
    ) -> None:
        descriptor, name = tempfile.mkstemp(suffix=".log", dir=out.parent)
        self.log = Path(name)
        sys.stdout.flush()
        self.process = os.fork()
        if self.process == 0:
            code = 70
            try:
                os.dup2(descriptor, 1)
                os.dup2(descriptor, 2)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                sys.argv = ["chita", *arguments, "--out", str(out)]
                if prepare is not None:
                    prepare()
                app.main()
                code = 0
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)
        os.close(descriptor)

    def send(self, number: int) -> None:
        """Send a signal, if the process has not ended."""
        with suppress(ProcessLookupError):
            os.kill(self.process, number)

    def wait(self) -> int:
        """Return the exit code; that of a killed process is negative."""
        ended = time.monotonic() + WAIT
        while time.monotonic() < ended:
            found, status = os.waitpid(self.process, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        self.send(signal.SIGKILL)
        os.waitpid(self.process, 0)
        raise AssertionError(f"a run hangs: {self.log.read_text()}")

    def failed_properly(self, code: int) -> bool:
        """Return whether a run ended well, was stopped, or printed one error."""
        text = self.log.read_text(errors="replace")
        return "Traceback" not in text and (code != 1 or "error:" in text)


@dataclass
class Case:
    """One disturbed run."""

    job: Job
    out: Path
    chance: random.Random
    reused: bool

    def start(self, prepare: Callable[[], None] | None = None) -> Run:
        """Start the run, at times with --resume, which a script may always pass."""
        resumes = self.job.resumes and not self.reused and self.chance.random() < 0.5
        return Run([*self.job.arguments, *(["--resume"] if resumes else [])], self.out, prepare)

    @property
    def sign(self) -> Path:
        """A file that exists once a run of recover has begun."""
        return self.out.with_name("begun")

    def moment(self) -> float:
        """Return a random moment of the run, in seconds."""
        return self.chance.uniform(0, 1.1 * self.job.seconds)


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


def check_end(run: Run, code: int, allowed: tuple[int, ...]) -> str:
    """Return what is wrong with the end of a disturbed run; an empty string if nothing is."""
    if code in allowed and run.failed_properly(code):
        run.log.unlink()
        return ""
    return f"exit code {code}: {run.log.read_text(errors='replace')[-600:]}"


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
