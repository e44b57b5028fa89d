"""The calls of layers and blocks in one forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from chita.model.forward import unwrapped
from chita.model.hooks import Args, Keywords, Owner, first_input, watching
from chita.model.samples.batch import Batch, copied


class LayerCall(NamedTuple):
    """A call of a layer.

    Attributes:
        module: the layer.
        same_input: whether its input is that of the call before.
        input_bytes: the size of its input.
    """

    module: nn.Module
    same_input: bool
    input_bytes: int


@dataclass
class CallTrace:
    """The calls of one forward pass.

    Attributes:
        calls: the calls of layers, in order.
        ends: the blocks in the order in which they return, each with the number of calls so far.
        outputs: what each block returned the last time.
        result: the output of the model.
    """

    calls: list[LayerCall] = field(default_factory=list)
    ends: list[tuple[nn.Module, int]] = field(default_factory=list)
    outputs: dict[nn.Module, Any] = field(default_factory=dict)
    result: Any = None


def trace_calls(
    model: nn.Module, layers: Sequence[Owner], blocks: Iterable[nn.Module], sample: Batch
) -> CallTrace:
    """Run a sample, and record the calls.

    Args:
        model: any module.
        layers: the layers whose calls are recorded.
        blocks: the modules whose outputs are recorded; a layer may be among them.
        sample: the sample, on the device of the model.
    """
    trace = CallTrace()
    last: Tensor | None = None  # a reference, so that no other tensor takes its place in memory

    def call(layer: nn.Module, args: Args, keywords: Keywords, output: Any) -> None:
        nonlocal last
        x = first_input(args, keywords)
        trace.calls.append(LayerCall(layer, x is last, x.nbytes))
        last = x

    def end(block: nn.Module, args: Args, keywords: Keywords, output: Any) -> None:
        trace.ends.append((block, len(trace.calls)))
        trace.outputs[block] = copied(output)  # the model may change it in place

    with watching([owner.module for owner in layers], call), watching(blocks, end):
        trace.result = sample.outputs(unwrapped(model))
    return trace
