"""The demonstration: the embedded MLPNet by magnitude, CHITA and CHITA++, side by side."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from torch import nn

from chita import data, zoo
from chita.errors import ChitaError
from chita.files.checkpoint import load_checkpoint
from chita.files.run_folder import write_run
from chita.files.whole import write_json
from chita.model.accuracy import accuracy
from chita.pruning.prune import prune
from chita.report.console import say
from chita.report.figures import accuracy_figure
from chita.report.page.render import write_page
from chita.report.progress import status_line
from chita.report.published import paper_accuracy
from chita.report.tables import Table

SPARSITIES = (0.8, 0.9, 0.95, 0.98)
METHODS = {"magnitude": "magnitude", "CHITA": "chita-bso", "CHITA++": "chita++"}


@dataclass(frozen=True)
class Point:
    """One pruned network."""

    accuracy: float
    seconds: float


def run_demo(folder: Path) -> None:
    """Prune at several sparsities, show them in a table, and draw them into accuracy.png.

    The folder also gets the last of the networks, as `chita prune` writes it, the points in
    demo.json, and a page on them all.
    """
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
    with status_line() as show_status:
        for name, method in METHODS.items():
            curves[name] = []
            for sparsity in SPARSITIES:
                show_status(f"{name}, {sparsity:.0%} sparse")
                result = prune(
                    dense(), calibration, sparsity=sparsity, method=method, progress=False
                )
                curves[name].append(Point(accuracy(result.model, test), result.seconds.total))
    say(_table(curves, dense_accuracy))
    figure = folder / "accuracy.png"
    accuracy_figure(
        figure,
        SPARSITIES,
        {name: [point.accuracy for point in points] for name, points in curves.items()},
        dense=dense_accuracy,
        title="MLPNet on MNIST",
    )
    say(f"accuracy against sparsity: {figure}")
    given = {"network": network.name, "data": embedded.data}
    config = {**asdict(result.config), **given}
    last = curves[name][-1].accuracy
    record = {**given, "dense_accuracy": dense_accuracy, "accuracy": last, **result.to_dict()}
    write_run(folder, result.model, result.masks, config=config, record=record)
    _write_points(folder / "demo.json", network.name, curves)
    say(f"all of it on one page: {write_page(folder)}")


def _write_points(path: Path, network: str, curves: dict[str, list[Point]]) -> None:
    """The points in the form of a benchmark, beside the paper's."""
    rows = [
        {
            "network": network,
            "method": METHODS[name],
            "sparsity": sparsity,
            **asdict(point),
            "paper": paper_accuracy(network, METHODS[name], sparsity),
        }
        for name, points in curves.items()
        for sparsity, point in zip(SPARSITIES, points, strict=True)
    ]
    content = {"benchmark": "demo", "title": "Three methods, side by side", "rows": rows}
    write_json(path, content)


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
