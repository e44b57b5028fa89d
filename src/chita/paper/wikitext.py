"""The files of WikiText-2 that the benchmarks of text use."""

from __future__ import annotations

from pathlib import Path

from chita.errors import ChitaError

CALIBRATION_FILE, TEST_FILE = "valid.txt", "wiki.test.raw"


def wikitext_files(texts: Path | None) -> tuple[Path, Path]:
    """Return the file to calibrate on and the file to measure on.

    Raises:
        ChitaError: there is no folder, or one of the files is missing.
    """
    if texts is not None:
        files = (texts / CALIBRATION_FILE, texts / TEST_FILE)
        if all(file.is_file() for file in files):
            return files
    raise ChitaError(
        f"texts (--texts) must be a folder with {CALIBRATION_FILE} and {TEST_FILE} of "
        f"WikiText-2, got {texts}"
    )
