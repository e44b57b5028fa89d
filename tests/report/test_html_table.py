"""Tables as HTML, as notebooks display them."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from rich.table import Table

import chita
from chita.report.html_table import as_html
from tests.support.pruning import cut, points, tiny


class Reader(HTMLParser):
    """The cells of each row, and a check that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def found() -> dict[str, Any]:
    """A result of each kind."""
    model, batches = tiny(), cut(points(60), 12)
    pruned = chita.prune(model, batches, sparsity=0.5, method="magnitude", progress=False)
    return {
        "prune": pruned,
        "recover": chita.recover(
            model, batches, loss=torch.nn.functional.cross_entropy, budget="3 steps", progress=False
        ),
        "sensitivity": chita.sensitivity(tiny(), batches, sparsities=[0.5, 0.9]),
        "accelerate": chita.accelerate(model, batches[0][0], form="csr"),
    }


def test_every_result_shows_the_cells_of_its_text() -> None:
    for name, result in found().items():
        rows = Reader(result._repr_html_()).rows
        text = re.sub(r"[^\S ]|[│┃|]", " ", str(result))
        assert len(rows) > 2 and len({len(row) for row in rows}) <= 2, name
        for cell in (cell for row in rows for cell in row):
            for word in cell.split():
                assert word in text, (name, cell)
        assert len(result._repr_html_()) < 5000


def test_rows_headers_footers_and_sides() -> None:
    table = Table(title="all <b>", caption="so & so", show_footer=True)
    table.add_column("name", "sum")
    table.add_column("count", "3", justify="right")
    table.add_row("a", "1")
    table.add_row("b", "2")
    text = as_html(table)
    assert Reader(text).rows == [["name", "count"], ["a", "1"], ["b", "2"], ["sum", "3"]]
    assert "all &lt;b&gt;" in text and "so &amp; so" in text
    assert text.count("text-align:right") == 4 and "None" not in text


def test_names_cannot_inject_and_no_colour_is_set() -> None:
    """A parameter may have any name, and a notebook any theme."""
    model = tiny()
    wrong = "<script>alert('x')</script>\x1b[31m"
    pruned = chita.prune(model, [], sparsity=0.5, method="magnitude", progress=False)
    pruned = replace(pruned, layers=[replace(pruned.layers[0], name=wrong)])
    text = pruned._repr_html_()
    assert "<script" not in text and "&lt;script&gt;" in text and "\x1b" not in text
    assert not re.search(r"#[0-9a-f]{3,6}\b|rgb|background", text)


@pytest.mark.parametrize("kept", [True, False])
def test_a_recovery_says_whether_it_was_kept(kept: bool) -> None:
    result = chita.RecoverResult(torch.nn.Linear(1, 1), 0.5, 0.25, kept, 1200, 300, 0.003, 1.5)
    assert ("undone" in str(result)) == ("undone" in result._repr_html_()) == (not kept)
    assert ["training steps", "", "1,200"] in Reader(result._repr_html_()).rows
