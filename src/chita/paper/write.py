"""What a benchmark leaves behind: NAME.csv, NAME.json, NAME.md and NAME.png."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chita.files.whole import write_csv, write_json, write_whole
from chita.report.figures import as_png, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Report:
    """The outcome of a benchmark.

    Attributes:
        title: one line.
        rows: the table, all rows with the same columns; None where there is no figure.
        text: what there is to read, in Markdown, tables included.
        draw: draws on an empty figure.
    """

    title: str
    rows: Sequence[Row]
    text: str
    draw: Callable[[Figure], None]


def write_report(folder: Path, name: str, report: Report) -> None:
    """Write the four files of a report."""
    figure = new_figure()
    report.draw(figure)
    picture = as_png(figure)
    content = {"benchmark": name, "title": report.title, "rows": [dict(r) for r in report.rows]}
    text = f"# {report.title}\n\n{report.text}\n\n![{report.title}]({name}.png)\n"
    write_csv(folder / f"{name}.csv", report.rows)
    write_json(folder / f"{name}.json", content)
    write_whole(folder / f"{name}.md", text.encode())
    write_whole(folder / f"{name}.png", picture)


def as_markdown(rows: Sequence[Row]) -> str:
    """A table in Markdown under the names of the columns; floats in at most five digits."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([*map(_show, r.values())] for r in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _show(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
