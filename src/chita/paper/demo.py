"""The demonstration: the embedded MLPNet pruned by magnitude, CHITA and CHITA++."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from chita import data, zoo
from chita.files.atomic import write_json
from chita.files.run_folder import PAGE_FILE, replacing, write_run
from chita.model.accuracy import accuracy
from chita.pruning.config import PruneConfig
from chita.pruning.options.declaration import defaults_of
from chita.pruning.prune import prune
from chita.pruning.result import PruneResult
from chita.report.console import show
from chita.report.figures import accuracy_figure
from chita.report.page.render import write_page
from chita.report.progress import status_line
from chita.report.published import paper_accuracy
from chita.report.tables import Table
from chita.zoo.trained import open_trained

SPARSITIES = (0.8, 0.9, 0.95, 0.98)


@dataclass(frozen=True)
class Column:
    """A column of the table: a method and other arguments of `chita.prune`."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)


# CHITA++ computes gradients in each of its 60 stages. Using fewer samples than the default saves
# time and costs little accuracy on this network; using fewer stages would cost more.
COLUMNS = {
    "magnitude": Column("magnitude"),
    "CHITA": Column("chita-bso"),
    "CHITA++": Column("chita++", {"samples": 200, "batch": 8}),
}
SHOWN_AFTER = ("CHITA", "CHITA++")  # show the table early: the first columns take seconds


@dataclass(frozen=True)
class Point:
    """The test accuracy of one pruned network, in percent, and the seconds that pruning took."""

    accuracy: float
    seconds: float


class Demo:
    """The embedded network and its data, and the points found so far."""

    def __init__(self) -> None:
        self.trained = open_trained(zoo.get("mlpnet"))
        self.test = self.trained.test
        self.calibration = data.Batches(self.trained.splits.train.shuffled(0), 1024)
        self.dense_accuracy = accuracy(self.dense(), self.test)
        self.curves: dict[str, list[Point]] = {}

    def dense(self) -> nn.Module:
        """Return a new copy of the trained network."""
        return self.trained.build()

    def prune_at(self, name: str, sparsity: float) -> PruneResult:
        """Prune a copy by the method of a column, and add the point to its curve."""
        column = COLUMNS[name]
        result = prune(
            self.dense(),
            self.calibration,
            sparsity=sparsity,
            method=column.method,
            progress=False,
            **column.options,
        )
        point = Point(accuracy(result.model, self.test), result.seconds.total)
        self.curves.setdefault(name, []).append(point)
        return result

    def table(self) -> Table:
        """Return the table of all columns; points that are not computed yet are dots."""
        title = (
            f"MLPNet, dense {self.dense_accuracy:.2f} %: test accuracy after pruning, in percent"
        )
        table = Table(title=title, caption=_caption())
        table.add_column("sparsity", justify="right")
        for name in COLUMNS:
            table.add_column(name, justify="right")
        columns = [self.curves.get(name) for name in COLUMNS]
        for index, sparsity in enumerate(SPARSITIES):
            cells = (f"{points[index].accuracy:.2f}" if points else "..." for points in columns)
            table.add_row(f"{sparsity:.0%}", *cells)
        table.add_section()
        seconds = (f"{points[-1].seconds:.1f} s" if points else "..." for points in columns)
        table.add_row(f"time at {SPARSITIES[-1]:.0%}", *seconds)
        return table

    def points(self) -> list[dict[str, Any]]:
        """Return the points as rows of a benchmark, beside the accuracy in the paper."""
        network = self.trained.network.name
        return [
            {
                "network": network,
                "method": COLUMNS[name].method,
                "sparsity": sparsity,
                **asdict(point),
                "paper": paper_accuracy(network, COLUMNS[name].method, sparsity),
            }
            for name, points in self.curves.items()
            for sparsity, point in zip(SPARSITIES, points, strict=True)
        ]

    def write(self, folder: Path, result: PruneResult, name: str) -> None:
        """Write the figure, the last network, the points and the page on all of them."""
        given = {"network": self.trained.network.name, "data": self.trained.data_name}
        record = {
            **given,
            "dense_accuracy": self.dense_accuracy,
            "accuracy": self.curves[name][-1].accuracy,
            **result.to_dict(),
        }
        config = {**asdict(result.config), **given}
        title = "Three methods, side by side"
        points = {"benchmark": "demo", "title": title, "rows": self.points()}
        with replacing(folder) as new:
            write_run(new, result.model, result.masks, config=config, record=record)
            write_json(new / "demo.json", points)
            self.draw(new / "accuracy.png")
            write_page(new, defaults=defaults_of(PruneConfig))
        show(f"figure of accuracy against sparsity: {folder / 'accuracy.png'}")
        show(f"page with all results: {folder / PAGE_FILE}")

    def draw(self, path: Path) -> None:
        """Draw the accuracy of each method against the sparsity."""
        accuracy_figure(
            path,
            SPARSITIES,
            {name: [point.accuracy for point in points] for name, points in self.curves.items()},
            dense=self.dense_accuracy,
            title="MLPNet on MNIST",
        )


def run_demo(folder: Path) -> None:
    """Prune the embedded MLPNet by each method at several sparsities, and show a table.

    The table appears as soon as magnitude and CHITA are done, and again when it is complete. The
    folder gets the figure accuracy.png, the last network as `chita prune` writes it, the points in
    demo.json, and the page report.html.
    """
    demo = Demo()
    for name in COLUMNS:
        with status_line() as show_status:
            for sparsity in SPARSITIES:
                show_status(f"pruning by {name} to {sparsity:.0%}")
                result = demo.prune_at(name, sparsity)
        if name in SHOWN_AFTER:
            show(demo.table())
    demo.write(folder, result, name)


def _caption() -> str | None:
    """Name the options of each column that differ from the defaults of `chita.prune`."""
    parts = [
        f"{name}: {', '.join(f'{key}={value}' for key, value in column.options.items())}"
        for name, column in COLUMNS.items()
        if column.options
    ]
    return "; ".join(parts) or None
