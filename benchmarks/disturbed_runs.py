"""The runs that `faults.py` disturbs, in processes of their own, and their undisturbed ends."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chita.cli import app

WAIT = 120  # seconds after which a run counts as hanging
RECIPE = """
epochs: 3
batch_size: 100
learning_rate: 0.05
pruning_steps: 2
pruning_interval: 0.34
methods: {chita-bso: {samples: 20, batch: 1, ridge: 0.001}}
"""


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


def check_end(run: Run, code: int, allowed: tuple[int, ...]) -> str:
    """Return what is wrong with the end of a disturbed run; an empty string if nothing is."""
    if code in allowed and run.failed_properly(code):
        run.log.unlink()
        return ""
    return f"exit code {code}: {run.log.read_text(errors='replace')[-600:]}"
