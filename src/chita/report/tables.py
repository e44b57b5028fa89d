"""Tables of results for the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, Protocol

from rich import box
from rich.console import RenderableType
from rich.table import Table

from chita.model.counts import Counts
from chita.report.console import PlainConsole

__all__ = [
    "Table",
    "as_text",
    "compact_table",
    "counts_table",
    "layer_table",
    "summary_table",
]

TRAINED_ON = {"distill": "the dense outputs", "loss": "the labels"}


class LayerLike(Protocol):
    """The properties of a layer that a table shows."""

    @property
    def name(self) -> str:
        """The name of the parameter."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the parameter."""

    @property
    def weights(self) -> int:
        """The number of weights."""

    @property
    def nonzeros(self) -> int:
        """The number of weights that are not zero."""

    @property
    def sparsity(self) -> float:
        """The fraction of the weights that are zero."""


class PrunedLike(Protocol):
    """The properties of a pruned network that a table shows; `chita.PruneResult` has them."""

    @property
    def title(self) -> str:
        """The method, and the pattern if there is one."""

    @property
    def layers(self) -> Sequence[LayerLike]:
        """A row for each pruned parameter."""

    @property
    def stages(self) -> Sequence[object]:
        """A row for each stage."""

    @property
    def weights(self) -> int:
        """The number of prunable weights."""

    @property
    def nonzeros(self) -> int:
        """The number of prunable weights that are not zero."""

    @property
    def sparsity(self) -> float:
        """The fraction of the prunable weights that are zero."""

    @property
    def sample_gradients(self) -> int:
        """The number of sample gradients that all stages computed."""

    @property
    def training_steps(self) -> int:
        """The number of training steps of all stages."""

    @property
    def held_out_loss(self) -> float | None:
        """The loss on held-out samples, if there are any."""

    @property
    def held_out_error(self) -> float | None:
        """Its standard error."""


def layer_table(result: PrunedLike) -> Table:
    """Return a table of how many weights of each layer are left, and of all layers."""
    title = f"{result.title}: {result.sparsity:.2%} of {result.weights:,} weights are zero"
    table = Table(title=title, show_footer=True, caption=_effort(result))
    table.add_column("weight", "all")
    table.add_column("shape")
    table.add_column("weights", f"{result.weights:,}", justify="right")
    table.add_column("kept", f"{result.nonzeros:,}", justify="right")
    table.add_column("sparsity", f"{result.sparsity:.2%}", justify="right")
    for row in result.layers:
        shape = " x ".join(str(size) for size in row.shape)
        table.add_row(
            row.name, shape, f"{row.weights:,}", f"{row.nonzeros:,}", f"{row.sparsity:.2%}"
        )
    return table


def _effort(result: PrunedLike) -> str | None:
    """Return the stages, gradients, training steps and held-out loss; None without gradients."""
    if not (result.sample_gradients or result.training_steps):
        return None
    effort = "1 stage" if len(result.stages) == 1 else f"{len(result.stages)} stages"
    if result.sample_gradients:
        effort += f", {result.sample_gradients:,} sample gradients"
    if result.training_steps:
        effort += f", {result.training_steps:,} training steps"
    if result.held_out_loss is None:
        return effort
    loss, error = result.held_out_loss, result.held_out_error
    spread = "" if error is None else f" (standard error {error:.2g})"
    return f"{effort}, held-out loss {loss:.4g}{spread}"


def counts_table(counts: Counts) -> Table:
    """Return a table of the costs of the whole model, dense and pruned, and their ratios."""
    table = Table("whole model", title="size and cost")
    for header in ("dense", "pruned", "left"):
        table.add_column(header, justify="right")
    rows = [
        ("parameters", counts.parameters, counts.nonzeros),
        ("bytes (pruned: bit mask and values)", counts.dense_bytes, counts.pruned_bytes),
    ]
    if counts.multiply_adds is not None:
        rows.append(
            ("multiply-adds per sample", counts.multiply_adds.dense, counts.multiply_adds.pruned)
        )
    for name, dense, pruned in rows:
        left = f"{pruned / dense:.2%}" if dense else "-"
        table.add_row(name, f"{dense:,}", f"{pruned:,}", left)
    return table


def summary_table(record: Mapping[str, Any]) -> Table:
    """Return a table of the main figures of a run, from the record in result.json."""
    seconds, ridge, objective = record["seconds"], record["ridge"], record["objective"]
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    _add_scores(table, record)
    table.add_row("non-zero weights", f"{record['nonzeros']:,} of {record['weights']:,}")
    measured = [row for row in record["stages"] if row["accepted"] and row["accuracy"] is not None]
    if measured:
        table.add_row("held-out accuracy of the last stage", f"{measured[-1]['accuracy']:.2f} %")
    for kept, groups in (record.get("groups") or {}).items():
        table.add_row(f"groups of {record['pattern']} that keep {kept}", f"{groups:,}")
    for row in record["repairs"]:
        kept = "kept" if row["kept"] else "not kept"
        losses = (row["loss_before"], row["loss_after"])
        change = " to ".join("no number" if loss is None else f"{loss:.4g}" for loss in losses)
        table.add_row(f"repair of {row['repair']}", f"{kept}, held-out loss {change}")
    if record["held_out_loss"] is not None:
        error = record["held_out_error"]
        spread = "" if error is None else f" (standard error {error:.2g})"
        table.add_row("held-out loss", f"{record['held_out_loss']:.4g}{spread}")
    table.add_row("stages", f"{len(record['stages'])}")
    if record["sample_gradients"]:
        table.add_row("sample gradients", f"{record['sample_gradients']:,}")
    if (gains := record.get("gains")) is not None:
        _add_gains(table, record, gains)
    if objective is not None:
        table.add_row("objective", f"{objective:.4g}")
    if ridge is not None:
        table.add_row("ridge of the last stage", f"{ridge:.2g}")
    table.add_row("seconds for gradients and inputs", f"{seconds['gradients']:.2f}")
    table.add_row("seconds for the solves", f"{seconds['solve']:.2f}")
    table.add_row("seconds for held-out losses", f"{seconds['held_out']:.2f}")
    if record.get("training_steps"):
        table.add_row("seconds for the training", f"{seconds['recovery']:.2f}")
    table.add_row("seconds in total", f"{seconds['total']:.2f}")
    table.add_row("peak memory", f"{record['peak_memory_bytes'] / 1e6:,.0f} MB")
    return table


def _add_scores(table: Table, record: Mapping[str, Any]) -> None:
    """Add the accuracies or the losses on test data, or that there are none."""
    if record["accuracy"] is not None:
        table.add_row("dense accuracy", f"{record['dense_accuracy']:.2f} %")
        table.add_row("accuracy", f"{record['accuracy']:.2f} %")
    elif record.get("test_loss") is not None:
        table.add_row("dense test loss", f"{record['dense_test_loss']:.4g}")
        table.add_row("test loss", f"{record['test_loss']:.4g}")
    else:
        table.add_row("accuracy", "not measured (no --test)")


def _add_gains(table: Table, record: Mapping[str, Any], gains: Mapping[str, Any]) -> None:
    """Add by how much the solves and the training lower the held-out loss."""
    stages = len(record["stages"])
    target = TRAINED_ON.get(record.get("trained_on", ""), "the samples")
    table.add_row(f"training steps on {target}", f"{record['training_steps']:,}")
    for name, part, used in (
        ("solves", "solve", "solves"),
        ("training", "recovery", "trainings"),
    ):
        what = f"fall of the held-out loss by {name}, {gains[used]} of {stages} stages"
        table.add_row(what, f"{gains[part]:.4g}")


def as_text(renderable: RenderableType, width: int = 100) -> str:
    """Return a table as plain text."""
    console = PlainConsole(file=StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def compact_table(title: str) -> Table:
    """Return an empty table without lines between its columns, which fits a narrow terminal."""
    return Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
