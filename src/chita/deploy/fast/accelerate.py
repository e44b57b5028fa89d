"""`chita.accelerate`: convert each layer to the form that is fastest on this machine."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from chita.deploy.example_input import agrees, check_example
from chita.deploy.fast.forms import FORMS, swap
from chita.deploy.fast.product import zero_share
from chita.deploy.timing import Timing, race, winner
from chita.errors import ChitaError, is_one_of
from chita.model.checks import check_module, check_not_sharded
from chita.model.forward import Example, call, device_of, evaluating
from chita.model.hooks import Args, Keywords, first_input, watching
from chita.model.layers import is_linear_map
from chita.report.html_table import as_html
from chita.report.tables import Table, as_text

DENSE = "dense"
CANNOT = (AttributeError, NotImplementedError, RuntimeError, TypeError)


@dataclass(frozen=True)
class LayerChoice:
    """The form that was chosen for a layer.

    Attributes:
        name: the name of the module.
        shape: the shape of its weight.
        sparsity: the share of zeros in the weight.
        chosen: "dense", or another form.
        reason: the reason for the choice.
        timings: the timings of a call in each form that fits.
    """

    name: str
    shape: tuple[int, ...]
    sparsity: float
    chosen: str
    reason: str
    timings: dict[str, Timing]

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dict for JSON."""
        timings = {kind: timing.to_dict() for kind, timing in self.timings.items()}
        return {**asdict(self), "timings": timings}


@dataclass(frozen=True)
class Accelerated:
    """The result of `chita.accelerate`: a copy of the model for inference, and its layers."""

    model: nn.Module = field(repr=False)
    layers: list[LayerChoice]

    @property
    def changed(self) -> bool:
        """Whether any layer has a form other than dense."""
        return any(row.chosen != DENSE for row in self.layers)

    def __str__(self) -> str:
        return as_text(choices_table(self.layers))

    def _repr_html_(self) -> str:
        return as_html(choices_table(self.layers))


@torch.no_grad()
def accelerate(
    model: nn.Module,
    example: Example,
    *,
    form: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Accelerated:
    """Return a copy of a pruned model in which layers use the forms measured as fastest.

    Each Linear layer and convolution with zeros is timed on its own input, dense and in every
    form that fits. It gets the fastest form if the gain exceeds the spread and the outputs are
    equal up to rounding. If the whole model does not gain, all layers stay dense. The fastest form
    depends on the machine, its threads and the batch size: give an example of the size in use.

    Args:
        model: the pruned model, which does not change.
        example: a tensor, a tuple of the model's arguments or a dict of its keywords.
        form: "compact", "csr", "sums" or "2:4" for every layer that it fits, without timing.
        progress: a function that is called with the number of layers that are finished, and of all
            layers.

    Returns:
        The copy, in eval mode, and the form of each layer.

    Raises:
        ChitaError: the form is unknown, or the model fails on the example.
    """
    check_module(model)
    check_not_sharded(model)
    if form is not None and not is_one_of(form, FORMS):
        raise ChitaError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    fast = copy.deepcopy(model).eval()
    wanted = check_example(fast, example)
    rows: list[LayerChoice] = []
    layers = _inputs(fast, example)
    for name, (layer, x) in layers.items():
        row, made = _choose(name, layer, x) if form is None else _take(form, name, layer)
        if made is not None:
            fast = swap(fast, layer, made)
            if not _matches(fast, example, wanted):
                fast = swap(fast, made, layer)
                row = replace(row, chosen=DENSE, reason="the model uses more than its output")
        rows.append(row)
        if progress is not None:
            progress(len(rows), len(layers))
    found = Accelerated(fast, rows)
    if form is None and found.changed and not _gains(found.model, model, example):
        why = "faster alone, but the whole model is not"
        rows = [
            row if row.chosen == DENSE else replace(row, chosen=DENSE, reason=why) for row in rows
        ]
        return Accelerated(copy.deepcopy(model).eval(), rows)
    return found


def _gains(fast: nn.Module, model: nn.Module, example: Example) -> bool:
    """Return whether the fast model beats the original."""
    ways = {"fast": partial(call, fast, example), DENSE: partial(call, model, example)}
    with evaluating(model):
        return winner(race(ways, device_of(model)), DENSE) is not None


def _choose(name: str, layer: nn.Module, x: Tensor) -> tuple[LayerChoice, nn.Module | None]:
    """Return the fastest form of one layer on the input x; None if it stays dense."""
    wanted = layer(x)
    forms = {}
    for kind, form in FORMS.items():
        made = form(layer)
        if made is not None and _matches(made, x, wanted):
            forms[kind] = made
    ways: dict[str, nn.Module] = {DENSE: layer, **forms}
    timings = race({kind: partial(module, x) for kind, module in ways.items()}, x.device)
    best = winner(timings, DENSE)
    row = _row(name, layer, best or DENSE, _reason(timings, best), timings)
    return row, None if best is None else forms[best]


def _take(form: str, name: str, layer: nn.Module) -> tuple[LayerChoice, nn.Module | None]:
    """Return the requested form; None if it does not fit the layer."""
    made = FORMS[form](layer)
    if made is None:
        return _row(name, layer, DENSE, f"{form} does not fit", {}), None
    return _row(name, layer, form, "requested", {}), made


def _row(
    name: str, layer: nn.Module, chosen: str, reason: str, timings: dict[str, Timing]
) -> LayerChoice:
    assert isinstance(layer.weight, Tensor)
    shape = tuple(layer.weight.shape)
    return LayerChoice(name, shape, zero_share(layer), chosen, reason, timings)


def _inputs(model: nn.Module, example: Example) -> dict[str, tuple[nn.Module, Tensor]]:
    """Return the layers that have zeros and another form, each with the input of its first call."""
    found: dict[str, tuple[nn.Module, Tensor]] = {}
    names = {
        layer: name
        for name, layer in model.named_modules()
        if is_linear_map(layer) and zero_share(layer) > 0
    }

    def note(layer: nn.Module, args: Args, keywords: Keywords, output: Any) -> None:
        found.setdefault(names[layer], (layer, first_input(args, keywords).clone()))

    with watching(names, note):
        call(model, example)
    return found


def _matches(model: nn.Module, example: Example, wanted: Any) -> bool:
    """Return whether a module runs on this machine, with the wanted output up to rounding."""
    try:
        found = call(model, example)
    except CANNOT:
        return False
    return agrees(found, wanted)


def _reason(timings: dict[str, Timing], best: str | None) -> str:
    dense = timings[DENSE].median
    others = {kind: timing.median for kind, timing in timings.items() if kind != DENSE}
    if best is not None:
        return f"{timings[best].gains(timings[DENSE])[1]:.2f} times as fast as dense"
    if not others:
        return "no other form fits"
    kind = min(others, key=lambda name: others[name])
    ratio = others[kind] / dense
    return f"no form is faster: the best, {kind}, takes {ratio:.2f} times as long"


def choices_table(rows: Sequence[LayerChoice]) -> Table:
    """Show the form that each layer takes, and the reason."""
    table = Table("layer", "shape", title="layer by layer")
    table.add_column("sparsity", justify="right")
    table.add_column("form")
    table.add_column("why")
    for row in rows:
        shape = " x ".join(str(size) for size in row.shape)
        table.add_row(row.name or "-", shape, f"{row.sparsity:.2%}", row.chosen, row.reason)
    return table
