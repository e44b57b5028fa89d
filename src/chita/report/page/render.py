"""Render the page: one HTML file with its data as JSON, its style and its script."""

from __future__ import annotations

import html
import json
import math
import re
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from chita.files.atomic import write_whole
from chita.report.page.bench_page import bench_page, bench_section
from chita.report.page.folder import Folder, read_folder
from chita.report.page.gradual_page import gradual_page
from chita.report.page.parts import Part
from chita.report.page.prune_page import prune_page

PAGE = "report.html"
SCRIPTS = ("dom", "scales", "cursor", "lines", "bars", "figure", "masks", "page")


def write_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a run folder, by default into the folder, and return its path."""
    out = out or folder / PAGE
    write_whole(out, render(page_data(read_folder(folder))).encode())
    return out


def page_data(folder: Folder) -> Part:
    """Return the content of the page."""
    if folder.record is None:
        page = bench_page(folder.benchmarks)
    else:
        make = gradual_page if "epochs" in folder.record else prune_page
        page = make(folder, folder.record)
        page["sections"] = [*map(bench_section, folder.benchmarks), *page["sections"]]
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
