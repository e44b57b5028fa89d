"""What the program does before torch is imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import chita
from chita.__main__ import WAITING

MODULE = [sys.executable, "-m", "chita"]
SCRIPT = [sys.executable, "-c", "from chita.__main__ import main; main()"]


def environment(**changes: str) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name not in WAITING}
    return {**found, **changes}


def test_import_is_light_and_all_names_are_there() -> None:
    code = "import sys, chita; assert 'torch' not in sys.modules; chita.solve; from chita import *"
    subprocess.run([sys.executable, "-c", code], check=True)
    for name in chita.__all__:
        assert getattr(chita, name) is not None
        assert name in dir(chita)
    with pytest.raises(AttributeError, match="no_such_name"):
        chita.no_such_name  # noqa: B018


def test_import_of_the_package_imports_nothing_else() -> None:
    """Ctrl-C during other imports would show their traceback."""
    code = (
        "import sys; before = {*sys.modules}; import chita; print(*sorted({*sys.modules} - before))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=environment(PYTHONPATH=str(Path(chita.__file__).parents[1])),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["__future__", "chita"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other libraries show their settings otherwise")
@pytest.mark.parametrize("start", [MODULE, SCRIPT], ids=["module", "script"])
@pytest.mark.parametrize(
    ("given", "policy", "spins"),
    [({}, "PASSIVE", True), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE", False)],
)
def test_threads_that_wait_sleep_soon(
    start: list[str], given: dict[str, str], policy: str, spins: bool
) -> None:
    done = subprocess.run(
        [*start, "--version"],
        env=environment(OMP_DISPLAY_ENV="VERBOSE", **given),
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"OMP_WAIT_POLICY = '{policy}'" in done.stderr
    assert ("GOMP_SPINCOUNT = '2000'" in done.stderr) == spins


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no signals")
@pytest.mark.parametrize("start", [MODULE, SCRIPT], ids=["module", "script"])
def test_ctrl_c_during_the_import_shows_no_traceback(start: list[str], tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "print('importing', flush=True)\nimport time\ntime.sleep(60)\n"
    )
    paths = [str(tmp_path), str(Path(chita.__file__).parents[1])]
    process = subprocess.Popen(
        [*start, "--version"],
        env=environment(PYTHONPATH=os.pathsep.join(paths)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (-signal.SIGINT, "")


@pytest.mark.parametrize("start", [MODULE, SCRIPT], ids=["module", "script"])
def test_ctrl_c_before_signals_can_be_handled_shows_no_traceback(
    start: list[str], tmp_path: Path
) -> None:
    (tmp_path / "signal.py").write_text("raise KeyboardInterrupt\n")
    paths = [str(tmp_path), str(Path(chita.__file__).parents[1])]
    done = subprocess.run(
        [*start, "--version"],
        env=environment(PYTHONPATH=os.pathsep.join(paths)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no signals")
def test_a_program_in_the_background_still_ignores_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "import os, signal, sys\nos.kill(os.getpid(), signal.SIGINT)\nsys.exit(7)\n"
    )
    paths = [str(tmp_path), str(Path(chita.__file__).parents[1])]
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    done = subprocess.run(
        [sys.executable, "-c", ignore + SCRIPT[-1]],
        env=environment(PYTHONPATH=os.pathsep.join(paths)),
        check=False,
    )
    assert done.returncode == 7
