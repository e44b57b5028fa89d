"""Read the files of a run folder for its page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chita.errors import ChitaError
from chita.files.regular import read_regular
from chita.files.run_folder import (
    CONFIG_FILE,
    MASKS_FILE,
    RESULT_FILE,
    check_finished,
    verified,
)
from chita.files.run_manifest import MANIFEST_FILE
from chita.files.yaml_file import read_yaml

Record = Mapping[str, Any]

_MOST_BYTES = 10**8  # of a JSON file; that of a run has some ten thousand

KINDS = ("stages", "epochs", "loss_before")  # of prune, gradual and recover: each has one of these


@dataclass(frozen=True)
class Benchmark:
    """The content of NAME.json, and the text of NAME.md before its first table."""

    name: str
    title: str
    rows: list[Record]
    text: str


@dataclass(frozen=True)
class Folder:
    """The files of `prune`, `gradual`, `recover` or `bench`.

    Attributes:
        path: the folder.
        record: the content of result.json; None for a benchmark.
        config: the content of config.yaml; empty without the file.
        masks: the file of the masks, if it exists.
        benchmarks: the benchmarks in the folder, by name.
    """

    path: Path
    record: Record | None
    config: Record
    masks: Path | None
    benchmarks: list[Benchmark]


def read_folder(path: Path) -> Folder:
    """Read the known files of a folder; raise an error if there are none."""
    if not path.is_dir():
        raise ChitaError(
            f"there is no folder {path}: give the --out of a prune, gradual, recover or bench"
        )
    check_finished(path)
    result, config, masks = (
        verified(path / name) for name in (RESULT_FILE, CONFIG_FILE, MASKS_FILE)
    )
    record = _read_record(result) if result.exists() else None
    others = sorted(set(path.glob("*.json")) - {result, path / MANIFEST_FILE})
    found = [_read_benchmark(verified(file)) for file in others]
    benchmarks = [benchmark for benchmark in found if benchmark is not None]
    if record is None and not benchmarks:
        raise ChitaError(
            f"{path} contains no results: expected {RESULT_FILE} of a finished prune, gradual "
            "or recover, or the NAME.json of a benchmark"
        )
    return Folder(
        path,
        record,
        _read_config(config) if config.exists() else {},
        masks if masks.exists() else None,
        benchmarks,
    )


def _read_record(path: Path) -> Record:
    record = _read_json(path)
    if not isinstance(record, dict) or not any(name in record for name in KINDS):
        raise ChitaError(
            f"{path} is not a result of prune, gradual or recover: "
            f"it has none of {', '.join(KINDS)}"
        )
    for name in ("stages", "epochs", "layers"):
        if not _is_table(record.get(name, [])):
            raise ChitaError(f"{path} is damaged: {name} is not a list of rows")
    return record


def _read_benchmark(path: Path) -> Benchmark | None:
    """Return the benchmark in a file; None if the file is not one of a benchmark."""
    content = _read_json(path)
    if not isinstance(content, dict) or "benchmark" not in content:
        return None
    if not _is_table(content.get("rows")):
        raise ChitaError(f"{path} is damaged: rows is not a list of rows")
    name = str(content["benchmark"])
    text = path.with_suffix(".md")
    return Benchmark(
        name,
        str(content.get("title", name)),
        content["rows"],
        _introduction(text.read_text(errors="replace")) if text.is_file() else "",
    )


def _introduction(markdown: str) -> str:
    """Return the plain text between the title and the first table, picture or heading."""
    lines: list[str] = []
    for line in markdown.splitlines()[1:]:
        if line.startswith(("|", "#", "!")):
            break
        lines.append(line.strip())
    return " ".join(lines).strip()


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_regular(path, _MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ChitaError(f"cannot read {path} as JSON: {error}") from error


def _read_config(path: Path) -> Record:
    config = read_yaml(path)
    if not isinstance(config, dict) or not all(isinstance(name, str) for name in config):
        raise ChitaError(f"{path} is damaged: expected settings by name")
    return config


def _is_table(rows: Any) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
