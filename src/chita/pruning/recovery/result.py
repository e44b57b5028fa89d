"""The result of `chita.recover`, and its table."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from chita.report.html_table import as_html
from chita.report.tables import Table, as_text


@dataclass(frozen=True)
class RecoverResult:
    """The outcome of `chita.recover`.

    Attributes:
        model: the model, which was trained in place.
        loss_before: the loss on held-out samples before the training.
        loss_after: the loss of the returned model.
        kept: whether the training lowered the loss; otherwise it was undone.
        steps: the number of training steps.
        samples: the number of samples that were trained on.
        rate: the relative rate that the range test found.
        seconds: the time of the call.
    """

    model: nn.Module = field(repr=False)
    loss_before: float
    loss_after: float
    kept: bool
    steps: int
    samples: int
    rate: float
    seconds: float

    def __str__(self) -> str:
        return as_text(_table(self))

    def _repr_html_(self) -> str:
        return as_html(_table(self))


def _table(result: RecoverResult) -> Table:
    """Return a table of the losses and the effort."""
    caption = None if result.kept else "The loss did not fall: the training is undone."
    table = Table("recovery", caption=caption)
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    table.add_row("held-out loss", f"{result.loss_before:.4g}", f"{result.loss_after:.4g}")
    table.add_row("training steps", "", f"{result.steps:,}")
    table.add_row("samples", "", f"{result.samples:,}")
    table.add_row("relative rate", "", f"{result.rate:.2g}")
    table.add_row("seconds", "", f"{result.seconds:.1f}")
    return table
