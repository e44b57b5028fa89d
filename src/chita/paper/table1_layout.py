"""The layout of tab:accuracy: a table and a panel of the figure for each network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chita.paper.added_methods import added_methods
from chita.paper.write import Row, as_markdown
from chita.report import published as paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {
    "mlpnet": "MLPNet on MNIST",
    "mlpnet-embedded": "The MLPNet that ships with chita, on its slice of MNIST",
    "resnet20": "ResNet20 on CIFAR-10",
    "mobilenetv1": "MobileNetV1 on ImageNet (n = 1000, m = 16, 100 stages of CHITA++)",
    "resnet50": "ResNet50 on ImageNet (lambda = 1e-5, n = 500, m = 16, blocks of 2000 to 10,000)",
}
EXPLANATION = """\
"grid" chooses the setting by test accuracy, as the paper does; "auto" chooses lambda on held-out
calibration samples. The standard error and the number of seeds are in brackets. The paper's figures
are for its own checkpoints; for ResNet50 it shows a plot without numbers. Rows with "needs
ImageNet" were not run, because they need the trained weights and ImageNet.

"CHITA" is the paper's algorithm. "CHITA, continuation" is not in the paper: it solves for larger
supports first and reduces them to the target. "CHITA++, paper's 15 stages" uses the paper's number
of stages and its exponential mesh; "CHITA++" uses our own stages and mesh. Comparing more settings
on the test set raises the accuracy of the best one: the line under each table states the number of
settings compared for each method, and the CSV and JSON files state the setting of each figure."""


def table1_text(rows: Sequence[Row]) -> str:
    """Return a table for each network: a row for each method and choice, a column per sparsity."""
    parts = [EXPLANATION]
    for network in dict.fromkeys(row["network"] for row in rows):
        of_network = [row for row in rows if row["network"] == network]
        dense = paper.DENSE[paper.paper_network(network)]
        parts.append(f"## {TITLES[network]} (the paper's dense network: {dense})")
        parts.append(as_markdown(_lines(of_network)))
        if sizes := _grid_sizes(of_network):
            parts.append(f'Settings compared by "grid": {sizes}.')
    return "\n\n".join(parts)


def _lines(rows: Sequence[Row]) -> list[Row]:
    """Return a line for each method and choice, and one for the paper if it has figures."""
    in_paper = {row["method"] for row in rows if row["paper"] is not None}
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        method, column = row["method"], str(row["sparsity"])
        sources = ("paper", row["choice"]) if method in in_paper else (row["choice"],)
        for source in sources:
            line = lines.setdefault((method, source), {"method": method, "": source})
            line[column] = _published(row) if source == "paper" else _measured(row)
    return list(lines.values())


def _grid_sizes(rows: Sequence[Row]) -> str:
    """Return a text with the number of settings compared for each method."""
    sizes: dict[str, set[int]] = {}
    for row in rows:
        if row["choice"] == "grid" and row["grid_size"]:
            sizes.setdefault(row["method"], set()).add(row["grid_size"])
    return "; ".join(
        f"{method} {min(found)}" + (f" to {max(found)}" if len(found) > 1 else "")
        for method, found in sizes.items()
    )


def _published(row: Row) -> str:
    return "-" if row["paper"] is None else f"{row['paper']:.2f}"


def _measured(row: Row) -> str:
    if isinstance(row["accuracy"], str):
        return row["accuracy"]
    error = "" if row["standard_error"] is None else f"{row['standard_error']:.2f}, "
    return f"{row['accuracy']:.2f} ({error}{row['seeds']})"


def draw_table1(figure: Figure, rows: Sequence[Row]) -> None:
    """Draw accuracy against sparsity, a panel for each network.

    Solid lines are the best settings of the grid, dashed lines the paper's figures.
    """
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure.set_size_inches(6.4 * len(networks), 4.8)
    for place, network in enumerate(networks, start=1):
        axes = figure.add_subplot(1, len(networks), place)
        for number, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
            line = [
                row
                for row in rows
                if (row["network"], row["method"], row["choice"]) == (network, method, "grid")
            ]
            marker, colour = ("o" if number < 10 else "s"), f"C{number}"  # ten colours
            if method in added_methods():  # black, and drawn above the others
                marker, colour = "*DPX"[added_methods().index(method) % 4], "k"
            for column, style in (("accuracy", f"{marker}-"), ("paper", "--")):
                known = [row for row in line if isinstance(row[column], float)]
                axes.plot(
                    [100 * row["sparsity"] for row in known],
                    [row[column] for row in known],
                    style,
                    color=colour,
                    markersize=8 if colour == "k" else 3,
                    linewidth=2 if colour == "k" else 1,
                    label=method if column == "accuracy" and known else None,
                )
        axes.set(xlabel="sparsity (%)", ylabel="test accuracy (%)", title=TITLES[network])
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small", title="dashed: the paper")
