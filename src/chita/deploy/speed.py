"""Time a pruned model against the dense one, on every path that this machine supports."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from chita.deploy.example_input import agrees, check_example, difference
from chita.deploy.fast.accelerate import CANNOT, DENSE, LayerChoice, accelerate
from chita.deploy.fast.forms import FORMS
from chita.deploy.paths.exported import OLD_OPSET, Exported, Run
from chita.deploy.paths.runtimes import DEEPSPARSE, RUNTIMES
from chita.deploy.timing import Timing, race, winner
from chita.errors import ChitaError, describe_error
from chita.model.forward import Example, call, device_of, evaluating
from chita.model.layers import is_linear_map
from chita.report.tables import Table

LAYER_BY_LAYER = "layer by layer"


@dataclass(frozen=True)
class Comparison:
    """All paths on one example.

    Attributes:
        batch: the number of samples in the example.
        timings: the seconds of each path; "dense" is the first.
        differences: the differences from the dense outputs, in units of the largest output.
        left_out: the paths that were not timed, with the reason.
        layers: the choices of `chita.accelerate`.
        without_zeros: the seconds of each runtime on a copy of the model without zeros. A runtime
            may be faster than PyTorch without any pruning.
    """

    batch: int
    timings: dict[str, Timing]
    differences: dict[str, float]
    left_out: dict[str, str]
    layers: list[LayerChoice]
    without_zeros: dict[str, Timing] = field(default_factory=dict)

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
            f"({low:.2f} to {high:.2f}){self._share_of_zeros(best)}: {_how_to(best)}"
        )

    def gain_by_zeros(self, path: str) -> float:
        """Return how many times as fast a path is as the same path without zeros.

        The layer forms compute what dense does without zeros.
        """
        return self.timings[path].gains(self._without_zeros(path))[1]

    def _without_zeros(self, path: str) -> Timing:
        return self.without_zeros.get(path, self.timings[DENSE])

    def _share_of_zeros(self, path: str) -> str:
        """Describe how much of the gain of a runtime is due to pruning."""
        if path not in self.without_zeros:
            return ""
        if not self.timings[path].beats(self.without_zeros[path]):
            return ", and as fast without pruning"
        return f", {self.gain_by_zeros(path):.2f} times as fast as without pruning"

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
                    "by_zeros": self.gain_by_zeros(name),
                    "difference": self.differences[name],
                }
                for name, timing in self.timings.items()
            },
            "left_out": self.left_out,
            "layers": [row.to_dict() for row in self.layers],
        }


@torch.no_grad()
def measure_speed(
    model: nn.Module,
    example: Example,
    batch: int,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Time the model on the example, dense and on every path, in one run.

    Args:
        model: the pruned model.
        example: the inputs (see `chita.accelerate`).
        batch: the number of samples in the example.
        progress: called with the number of layers that were timed, and of all layers.

    Raises:
        ChitaError: the model fails on the example, or its outputs differ from call to call.
    """
    with evaluating(model):
        check_example(model, example)
        chosen = accelerate(model, example, progress=progress)
        paths: dict[str, Run] = {DENSE: partial(call, model, example)}
        left_out: dict[str, str] = {}
        forms = {form: accelerate(model, example, form=form) for form in FORMS}
        for name, fast in {**forms, LAYER_BY_LAYER: chosen}.items():
            if fast.changed:
                paths[name] = partial(call, fast.model, example)
            else:
                left_out[name] = "no layer is faster" if fast is chosen else "fits no layer"
        found, without_zeros, missing = _runtime_paths(model, example)
        return compare(
            {**paths, **found},
            device_of(model),
            batch,
            {**left_out, **missing},
            chosen.layers,
            without_zeros=without_zeros,
        )


def compare(
    paths: Mapping[str, Run],
    device: torch.device,
    batch: int,
    left_out: Mapping[str, str],
    layers: list[LayerChoice],
    *,
    without_zeros: Mapping[str, Run] | None = None,
) -> Comparison:
    """Time the paths, including "dense", except those that fail or give other outputs.

    Args:
        paths: the paths by name.
        device: the device of the work.
        batch: the number of samples in the example.
        left_out: the paths that are not among them, with the reason.
        layers: the choices of `chita.accelerate`.
        without_zeros: some of the paths on a copy of the model without zeros, which has other
            outputs.

    Raises:
        ChitaError: the outputs of the dense path differ from call to call.
    """
    wanted = paths[DENSE]()
    ways, differences, reasons = {}, {}, dict(left_out)
    for name, path in paths.items():
        try:
            found = path()
        except (*CANNOT, ChitaError) as error:
            reasons[name] = f"fails: {describe_error(error)}"
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
    copies = {name: path for name, path in (without_zeros or {}).items() if name in ways}
    timings = race({**ways, **{_copy(name): path for name, path in copies.items()}}, device)
    others = {name: timings.pop(_copy(name)) for name in copies}
    return Comparison(batch, timings, differences, reasons, layers, others)


def _copy(path: str) -> str:
    """Return the name under which a path is timed without zeros."""
    return f"{path} without zeros"


def _how_to(path: str) -> str:
    """Return the call or command that gives a path."""
    if path in RUNTIMES:
        return f"chita export --opset {OLD_OPSET}" if path == DEEPSPARSE else "chita export"
    form = f", form={path!r}" if path in FORMS else ""
    return f"chita.accelerate(model, example{form})"


def _runtime_paths(
    model: nn.Module, example: Example
) -> tuple[dict[str, Run], dict[str, Run], dict[str, str]]:
    """Return the paths of the runtimes, the same without zeros, and why others are left out."""
    if device_of(model).type != "cpu":
        return {}, {}, dict.fromkeys(RUNTIMES, "runs on the CPU only")
    pruned, dense = Exported(model, example), Exported(_without_zeros(model), example)
    paths, without_zeros, left_out = {}, {}, {}
    for name, runtime in RUNTIMES.items():
        try:
            paths[name], without_zeros[name] = runtime(pruned), runtime(dense)
        except ChitaError as error:
            left_out[name] = str(error)
    return paths, without_zeros, left_out


def _without_zeros(model: nn.Module) -> nn.Module:
    """Return a copy whose zero weights are replaced by random numbers of the same scale."""
    dense = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    for layer in filter(is_linear_map, dense.modules()):
        assert isinstance(layer.weight, Tensor)
        weight = layer.weight
        drawn = torch.randn(weight.shape, generator=generator).to(weight)
        scale = weight.square().mean().sqrt()
        weight.copy_(torch.where(weight == 0, scale * drawn, weight))
    return dense


def comparison_table(comparison: Comparison) -> Table:
    """Show all paths at one batch size: median, gain over dense and over itself without zeros."""
    others = [f"{name} ({reason})" for name, reason in comparison.left_out.items()]
    caption = f"not timed: {', '.join(others)}" if others else None
    table = Table("path", title=f"batch {comparison.batch}", caption=caption)
    for header in ("ms", "times as fast", "IQR", "by zeros", "difference"):
        table.add_column(header, justify="right")
    dense = comparison.timings[DENSE]
    for name, timing in comparison.timings.items():
        low, median, high = timing.gains(dense)
        table.add_row(
            name,
            f"{1e3 * timing.median:.4g}",
            f"{median:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{comparison.gain_by_zeros(name):.2f}",
            f"{comparison.differences[name]:.1e}",
        )
    return table
