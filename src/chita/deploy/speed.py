"""Time a pruned model against the dense one, on every path that this machine supports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from chita.deploy.example_input import agrees, check_example, difference
from chita.deploy.fast.accelerate import CANNOT, DENSE, LayerChoice, accelerate
from chita.deploy.fast.forms import FORMS
from chita.deploy.onnx_file import onnx_bytes, open_onnx, run_onnx
from chita.deploy.timing import Timing, race, winner
from chita.errors import ChitaError
from chita.model.forward import Example, call, device_of, evaluating
from chita.report.tables import Table

LAYER_BY_LAYER = "layer by layer"
ONNX = "onnxruntime"

Path = Callable[[], Any]  # runs the model on the example


@dataclass(frozen=True)
class Comparison:
    """All paths on one example.

    Attributes:
        batch: the number of samples in the example.
        timings: the seconds of each path; "dense" is the first.
        differences: the differences from the dense outputs, in units of the largest output.
        left_out: the paths that were not timed, with the reason.
        layers: the choices of `chita.accelerate`.
    """

    batch: int
    timings: dict[str, Timing]
    differences: dict[str, float]
    left_out: dict[str, str]
    layers: list[LayerChoice]

    @property
    def best(self) -> str | None:
        """The fastest path; None if no path is faster than dense."""
        return winner(self.timings, DENSE)

    @property
    def advice(self) -> str:
        """A recommendation in words."""
        best = self.best
        if best is None:
            return f"batch {self.batch}: no path is faster than dense, use dense"
        low, median, high = self.timings[best].gains(self.timings[DENSE])
        return (
            f"batch {self.batch}: use {best}, {median:.2f} times as fast as dense "
            f"({low:.2f} to {high:.2f}): {_how_to(best)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dict for JSON."""
        return {
            "batch": self.batch,
            "use": self.best or DENSE,
            "advice": self.advice,
            "paths": {
                name: {
                    **timing.to_dict(),
                    "times_as_fast": timing.gains(self.timings[DENSE])[1],
                    "difference": self.differences[name],
                }
                for name, timing in self.timings.items()
            },
            "left_out": self.left_out,
            "layers": [row.to_dict() for row in self.layers],
        }


@torch.no_grad()
def measure_speed(model: nn.Module, example: Example, batch: int) -> Comparison:
    """Time the model on the example, dense and on every path, in one run.

    Args:
        model: the pruned model.
        example: the inputs (see `chita.accelerate`).
        batch: the number of samples in the example.

    Raises:
        ChitaError: the model fails on the example, or its outputs differ from call to call.
    """
    with evaluating(model):
        check_example(model, example)
        chosen = accelerate(model, example)
        paths: dict[str, Path] = {DENSE: partial(call, model, example)}
        left_out: dict[str, str] = {}
        forms = {form: accelerate(model, example, form=form) for form in FORMS}
        for name, fast in {**forms, LAYER_BY_LAYER: chosen}.items():
            if fast.changed:
                paths[name] = partial(call, fast.model, example)
            else:
                left_out[name] = "no layer is faster" if fast is chosen else "fits no layer"
        try:
            paths[ONNX] = _onnx_path(model, example)
        except ChitaError as error:
            left_out[ONNX] = str(error)
        return compare(paths, device_of(model), batch, left_out, chosen.layers)


def compare(
    paths: Mapping[str, Path],
    device: torch.device,
    batch: int,
    left_out: Mapping[str, str],
    layers: list[LayerChoice],
) -> Comparison:
    """Time the paths, including "dense", except those that fail or give other outputs.

    Raises:
        ChitaError: the outputs of the dense path differ from call to call.
    """
    wanted = paths[DENSE]()
    ways, differences, reasons = {}, {}, dict(left_out)
    for name, path in paths.items():
        try:
            found = path()
        except (*CANNOT, ChitaError) as error:
            reasons[name] = f"fails: {str(error).splitlines()[0]}"
            continue
        if agrees(found, wanted):
            ways[name], differences[name] = path, difference(found, wanted)
        else:
            reasons[name] = f"differs by {difference(found, wanted):.1e}"
    if DENSE not in ways:
        raise ChitaError(
            "paths are compared by their outputs, but the model's outputs differ from one call to "
            f"the next ({reasons[DENSE]}): remove its random operations"
        )
    return Comparison(batch, race(ways, device), differences, reasons, layers)


def _how_to(path: str) -> str:
    """Return the call or command that gives a path."""
    if path == ONNX:
        return "chita export"
    form = f", form={path!r}" if path in FORMS else ""
    return f"chita.accelerate(model, example{form})"


def _onnx_path(model: nn.Module, example: Example) -> Path:
    """Return a path that runs onnxruntime on the CPU."""
    if device_of(model).type != "cpu":
        raise ChitaError("runs on the CPU only")
    return partial(run_onnx, open_onnx(onnx_bytes(model, example)), example)


def comparison_table(comparison: Comparison) -> Table:
    """Show all paths at one batch size: median, spread and gain over dense."""
    others = [f"{name} ({reason})" for name, reason in comparison.left_out.items()]
    caption = f"not timed: {', '.join(others)}" if others else None
    table = Table("path", title=f"batch {comparison.batch}", caption=caption)
    for header in ("ms", "IQR", "times as fast", "IQR", "difference"):
        table.add_column(header, justify="right")
    dense = comparison.timings[DENSE]
    for name, timing in comparison.timings.items():
        low, median, high = timing.gains(dense)
        table.add_row(
            name,
            f"{1e3 * timing.median:.4g}",
            f"{1e3 * timing.spread:.2g}",
            f"{median:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{comparison.differences[name]:.1e}",
        )
    return table
