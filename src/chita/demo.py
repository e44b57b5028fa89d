"""The demonstration: the embedded MLPNet by magnitude, CHITA and CHITA++, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch import nn

from chita import data, zoo
from chita.checkpoint import load_checkpoint
from chita.errors import ChitaError
from chita.evaluate import accuracy
from chita.prune import prune
from chita.report.figures import accuracy_figure

SPARSITIES = (0.8, 0.9, 0.95, 0.98)
METHODS = {"magnitude": "magnitude", "CHITA": "chita-bso", "CHITA++": "chita++"}


@dataclass(frozen=True)
class Point:
    """One pruned network."""

    accuracy: float
    seconds: float


def run_demo(folder: Path, console: Console) -> None:
    """Prune at several sparsities, show them in a table, and draw them into accuracy.png."""
    network = zoo.get("mlpnet")
    embedded = network.embedded
    if embedded is None:
        raise ChitaError("the demonstration needs the network that ships with chita")
    splits = data.load(embedded.data)
    test = data.Batches(splits.test, 1000)
    calibration = data.Batches(splits.train.shuffled(0), 1024)

    def dense() -> nn.Module:
        model = network.build()
        load_checkpoint(model, embedded.checkpoint)
        return model

    dense_accuracy = accuracy(dense(), test)
    curves: dict[str, list[Point]] = {}
    with console.status("") as status:
        for name, method in METHODS.items():
            curves[name] = []
            for sparsity in SPARSITIES:
                status.update(f"{name}, {sparsity:.0%} sparse")
                result = prune(
                    dense(), calibration, sparsity=sparsity, method=method, progress=False
                )
                curves[name].append(Point(accuracy(result.model, test), result.seconds.total))
    console.print(_table(curves, dense_accuracy))
    figure = folder / "accuracy.png"
    accuracy_figure(
        figure,
        SPARSITIES,
        {name: [point.accuracy for point in points] for name, points in curves.items()},
        dense=dense_accuracy,
        title="MLPNet on MNIST",
    )
    console.print(f"accuracy against sparsity: {figure}", soft_wrap=True, markup=False)


def _table(curves: dict[str, list[Point]], dense_accuracy: float) -> Table:
    table = Table(title=f"MLPNet, dense {dense_accuracy:.2f} %: accuracy after pruning, in percent")
    table.add_column("sparsity", justify="right")
    for name in curves:
        table.add_column(name, justify="right")
    for index, sparsity in enumerate(SPARSITIES):
        cells = (f"{points[index].accuracy:.2f}" for points in curves.values())
        table.add_row(f"{sparsity:.0%}", *cells)
    seconds = (f"{points[-1].seconds:.1f} s" for points in curves.values())
    table.add_section()
    table.add_row(f"time at {SPARSITIES[-1]:.0%}", *seconds)
    return table
