"""The tables of results as HTML, which notebooks display (`_repr_html_`)."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from rich.table import Table

from chita.report.console import printable

# No colours: a notebook has a light or a dark theme, and its own style for tables.
_TITLE = "text-align:left;caption-side:top;font-weight:bold;color:inherit"


def as_html(*tables: Table) -> str:
    """Return tables, whose cells are strings, as HTML with escaped text."""
    return "".join(map(_table, tables))


def _table(table: Table) -> str:
    columns = table.columns
    parts = ["<table>"]
    if table.title is not None:
        parts.append(f'<caption style="{_TITLE}">{_escaped(table.title)}</caption>')
    if table.show_header:
        parts.append(f"<thead>{_row(table, 'th', [c.header for c in columns])}</thead>")
    rows = zip(*(column.cells for column in columns), strict=True)
    parts += ["<tbody>", *(_row(table, "td", row) for row in rows), "</tbody>"]
    if table.show_footer:
        parts.append(f"<tfoot>{_row(table, 'th', [c.footer for c in columns])}</tfoot>")
    parts.append("</table>")
    if table.caption is not None:
        parts.append(f"<p>{_escaped(table.caption)}</p>")
    return "".join(parts)


def _row(table: Table, tag: str, cells: Iterable[Any]) -> str:
    aligned = zip(table.columns, cells, strict=True)
    return "<tr>" + "".join(_cell(tag, column.justify, cell) for column, cell in aligned) + "</tr>"


def _cell(tag: str, justify: str, cell: Any) -> str:
    return f'<{tag} style="text-align:{justify}">{_escaped(cell)}</{tag}>'


def _escaped(text: Any) -> str:
    return html.escape(printable(str(text)))
