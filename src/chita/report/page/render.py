"""Render the page: one HTML file with its data as JSON, its style and its script."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from chita.files.atomic import write_whole
from chita.files.run_folder import PAGE_FILE, reading_one_run
from chita.files.single_file import adding_file, check_not_of_a_run
from chita.report.page.bench_page import bench_page, with_benchmarks
from chita.report.page.folder import Folder, read_folder
from chita.report.page.gradual_page import gradual_page
from chita.report.page.parts import Part
from chita.report.page.prune_page import prune_page
from chita.report.page.recover_page import recover_page

SCRIPTS = ("dom", "scales", "cursor", "table", "lines", "bars", "figure", "masks", "page")


_MARK = b'<meta name="generator" content="chita">'  # near the start of each page


def is_page(path: Path) -> bool:
    """Return whether a file is a page of chita, which may be written again."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _MARK in file.read(1000)


def write_page(
    folder: Path, out: Path | None = None, *, defaults: Mapping[str, Any] | None = None
) -> Path:
    """Write the page of a run folder, and return its path.

    Args:
        folder: the run folder.
        out: the page; by default a file in the folder.
        defaults: the default values of the settings of `chita.prune`. The page lists other values
            first.
    """
    out = out or folder / PAGE_FILE
    if out.name != PAGE_FILE:
        check_not_of_a_run(out)
    with reading_one_run(folder):
        page = render(page_data(read_folder(folder), defaults))
    with adding_file(out):
        write_whole(out, page.encode(errors="replace"))  # JSON may contain half of a character
    return out


def page_data(folder: Folder, defaults: Mapping[str, Any] | None = None) -> Part:
    """Return the content of the page."""
    record = folder.record
    if record is None:
        page = bench_page(folder.benchmarks)
    elif "epochs" in record:
        page = gradual_page(folder, record)
    elif "stages" in record:
        page = prune_page(folder, record, defaults or {})
    else:
        page = recover_page(folder, record)
    page = page if record is None else with_benchmarks(page, folder.benchmarks)
    return {**page, "version": metadata.version("chita")}


def render(page: Part) -> str:
    """Return the page as HTML; text of a run cannot end the script element with the data."""
    data = json.dumps(_plain(page), allow_nan=False, separators=(",", ":"))
    filled = {
        "title": html.escape(page["title"]),
        "style": _asset("page.css"),
        "script": "\n".join(_asset(f"{name}.js") for name in SCRIPTS),
        "data": data.replace("<", r"\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: filled[found[1]], _asset("page.html"))


def _plain(value: Any) -> Any:
    """Return the value with floats rounded to six digits, and None for infinities and NaN."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _asset(name: str) -> str:
    return (resources.files("chita.report.page") / "assets" / name).read_text(encoding="utf-8")
