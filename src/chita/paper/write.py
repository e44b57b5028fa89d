"""Write the report of a benchmark: NAME.csv, NAME.json, NAME.md and NAME.png."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chita.files.atomic import write_csv, write_json, write_whole
from chita.report.figures import as_png, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Report:
    """The results of a benchmark.

    Attributes:
        title: the title, one line.
        rows: the table; all rows have the same columns, and None is a missing figure.
        text: the explanation and the tables, in Markdown.
        draw: draws the figure, given an empty one.
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
    """Return the rows as a Markdown table; floats have at most five digits."""
    if not rows:
        return ""
    lines = [
        [*map(_show, rows[0])],
        ["---"] * len(rows[0]),
        *([*map(_show, r.values())] for r in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _show(value: Any) -> str:
    if value is None:
        return "-"
    shown = f"{value:.5g}" if isinstance(value, float) else str(value)
    return shown.replace("|", r"\|")  # a method of a user may have any name
