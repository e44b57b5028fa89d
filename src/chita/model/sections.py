"""The sections of a network: its blocks, and the layers of each, found by one forward pass.

Blocks are modules of one class in a ModuleList or Sequential that contain prunable layers and are
called once each, in order, such as the layers of a transformer. The longest such chain is used,
if a sample that runs section by section (see `replay.py`) has the outputs of a plain pass. A
network without blocks is one section.

Within a section, layers form groups in the order of their calls: layers that are called in a row on
the same input, such as query, key and value, are one group.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.call_trace import CallTrace, trace_calls
from chita.model.forward import evaluating
from chita.model.hooks import Owner
from chita.model.layers import kind_of, linear_columns
from chita.model.replay import Replay
from chita.model.samples.batch import Batch, bytes_of, tensors_of
from chita.model.weights import Weight

MOST_GROUPS = 8  # in a section: each group takes a forward pass of a part of the section


@dataclass(frozen=True)
class SharedInput:
    """Layers that are called in a row on the same input; often a single layer.

    Attributes:
        weights: their weights.
        modules: the modules with the first weight, whose inputs are those of all layers.
        calls: how often a forward pass calls these modules; 0 if that depends on the sample.
    """

    weights: tuple[Weight, ...]
    modules: tuple[nn.Module, ...]
    calls: int


Group = tuple[SharedInput, ...]


@dataclass(frozen=True)
class Sections:
    """A network, divided into sections.

    Attributes:
        replay: runs the sections.
        names: the name of each section: that of its block; the last one is "the end".
        groups: the groups of prunable layers of each section, in the order of their calls.
        output_bytes: the size of the largest output of a block, for the traced sample.
        input_bytes: the size of the inputs of all layers of a section, for the one where it is
            largest.
    """

    replay: Replay
    names: tuple[str, ...]
    groups: tuple[tuple[Group, ...], ...]
    output_bytes: int = 0
    input_bytes: int = 0

    @property
    def last(self) -> int:
        """The last section with prunable layers."""
        return max(number for number, groups in enumerate(self.groups) if groups)

    def weights(self, section: int) -> list[Weight]:
        """Return the prunable weights of a section."""
        groups = self.groups[section]
        return [weight for group in groups for shared in group for weight in shared.weights]

    def layers(self, section: int) -> list[nn.Module]:
        """Return the layers of a section, one of those that share their input."""
        groups = self.groups[section]
        return [module for group in groups for shared in group for module in shared.modules]


@torch.no_grad()
def find_sections(model: nn.Module, layers: Sequence[Owner], sample: Batch) -> Sections:
    """Find the sections of a network.

    Args:
        model: any module. It runs in eval mode and keeps its state.
        layers: its prunable layers, each with one weight.
        sample: a sample to run, on the device of the model.
    """
    chains = _chains(model, layers)
    with evaluating(model):
        trace = trace_calls(model, layers, {block for chain in chains for block in chain}, sample)
        for chain in chains:
            found = _divide(model, layers, chain, trace)
            if found is not None and _runs_in_sections(found.replay, trace, sample):
                sizes = (bytes_of(trace.outputs[block]) for block in chain)
                return replace(_fast(found), output_bytes=max(sizes))
    whole = _divide(model, layers, (), trace)
    assert whole is not None
    return _fast(whole)


def _fast(sections: Sections) -> Sections:
    """Return the same sections in fast arithmetic, for which their check is too strict."""
    return replace(sections, replay=replace(sections.replay, fast=True))


def _chains(model: nn.Module, layers: Sequence[Owner]) -> list[tuple[nn.Module, ...]]:
    """Return the lists of modules that may be blocks, the longest first."""
    prunable = {owner.module for owner in layers}
    chains: dict[tuple[nn.Module, ...], int] = {}
    for container in model.modules():
        if not isinstance(container, (nn.ModuleList, nn.Sequential)):
            continue
        by_class: dict[type[nn.Module], list[nn.Module]] = {}
        for child in container:
            if any(module in prunable for module in child.modules()):
                by_class.setdefault(type(child), []).append(child)
        for chain in by_class.values():
            if len(chain) > 1:
                chains[tuple(chain)] = sum(p.numel() for m in chain for p in m.parameters())
    return sorted(chains, key=lambda chain: (-len(chain), -chains[chain]))


def _divide(
    model: nn.Module, layers: Sequence[Owner], chain: tuple[nn.Module, ...], trace: CallTrace
) -> Sections | None:
    """Return the sections for a chain of blocks; None if these are no blocks.

    They are none if they are not called once each, in order, or if a weight has calls in several
    sections.
    """
    ends = [(module, calls) for module, calls in trace.ends if module in set(chain)]
    if [module for module, _ in ends] != list(chain):
        return None
    bounds = [calls for _, calls in ends]
    layered = _by_weight(layers, trace)
    members: list[list[_Layer]] = [[] for _ in range(len(chain) + 1)]
    for layer in layered:
        places = {bisect_right(bounds, call) for call in layer.calls}
        places = places or {_holder(layer, chain)}
        if len(places) > 1:
            return None
        members[places.pop()].append(layer)
    names = {module: name for name, module in model.named_modules()}
    sections = Sections(
        Replay(model, chain),
        (*(names[block] for block in chain), "the end"),
        tuple(tuple(_grouped(each, trace)) for each in members),
    )
    return replace(sections, input_bytes=_largest_inputs(sections, trace))


def _largest_inputs(sections: Sections, trace: CallTrace) -> int:
    """Return the size of the inputs of the layers of a section, for the one where it is largest."""
    sizes: dict[nn.Module, int] = {}
    for call in trace.calls:
        sizes[call.module] = sizes.get(call.module, 0) + call.input_bytes
    found = (sections.layers(number) for number in range(len(sections.groups)))
    return max(sum(sizes.get(layer, 0) for layer in layers) for layers in found)


@dataclass(frozen=True)
class _Layer:
    """A weight, its modules, the numbers of their calls, and whether it may share its input."""

    weight: Weight
    modules: tuple[nn.Module, ...]
    calls: tuple[int, ...]
    linear: bool

    def follows(self, other: _Layer, trace: CallTrace) -> bool:
        """Return whether the layer is called once, right after another one, on the same input."""
        once = self.linear and other.linear and len(self.calls) == len(other.calls) == 1
        same = once and trace.calls[self.calls[0]].same_input
        return same and self.calls[0] == other.calls[0] + 1


def _by_weight(layers: Sequence[Owner], trace: CallTrace) -> list[_Layer]:
    """Return the layers by their first calls; those without a call come last."""
    modules: dict[str, list[Owner]] = {}
    for owner in layers:
        modules.setdefault(owner.owned["weight"].name, []).append(owner)
    found = []
    for owners in modules.values():
        own = tuple(owner.module for owner in owners)
        calls = tuple(n for n, call in enumerate(trace.calls) if call.module in own)
        linear = kind_of(own[0]).columns is linear_columns
        found.append(_Layer(owners[0].owned["weight"], own, calls, linear))
    return sorted(found, key=lambda layer: layer.calls[:1] or (len(trace.calls),))


def _holder(layer: _Layer, chain: tuple[nn.Module, ...]) -> int:
    """Return the number of the block that contains a layer; the last section if none does."""
    inside = (n for n, block in enumerate(chain) if layer.modules[0] in set(block.modules()))
    return next(inside, len(chain))


def _grouped(layers: Sequence[_Layer], trace: CallTrace) -> Iterator[Group]:
    """Divide the layers of a section into at most MOST_GROUPS groups.

    All calls of a group come before those of the next, so that one pass measures a group.
    """
    groups: list[list[SharedInput]] = []
    latest = -1  # the last call so far
    for before, layer in zip((None, *layers), layers, strict=False):
        if before is not None and layer.follows(before, trace):
            shared = groups[-1].pop()
            groups[-1].append(replace(shared, weights=(*shared.weights, layer.weight)))
        else:
            if not groups or (layer.calls and layer.calls[0] > latest):
                groups.append([])
            groups[-1].append(SharedInput((layer.weight,), layer.modules, len(layer.calls)))
        latest = max(latest, *layer.calls, -1)
    size = max(1, -(-len(groups) // MOST_GROUPS))
    for start in range(0, len(groups), size):
        yield tuple(shared for group in groups[start : start + size] for shared in group)


def _runs_in_sections(replay: Replay, trace: CallTrace, sample: Batch) -> bool:
    """Return whether each section computes what a plain pass does, from the section before.

    It does not if a block uses more than the output of the block before, as in a U-Net.
    """
    try:
        before = None
        for number, block in enumerate(replay.blocks):
            found, expected = replay.run(number, sample, before), trace.outputs[block]
            if not _alike(tensors_of(found), tensors_of(expected)):
                return False
            before = expected
        result = replay.run(len(replay.blocks), sample, before)
        # The first tensor is a loss or an answer; caches of attention may come later.
        return _alike(tensors_of(result)[:1], tensors_of(trace.result)[:1])
    except ChitaError:
        return False


def _alike(found: list[Tensor], expected: list[Tensor]) -> bool:
    """Return whether tensors differ by rounding errors only."""
    if not found or [x.shape for x in found] != [x.shape for x in expected]:
        return False
    return all(_close(one, other) for one, other in zip(found, expected, strict=True))


def _close(one: Tensor, other: Tensor) -> bool:
    if not one.is_floating_point():
        return bool((one == other).all())
    tolerance = torch.finfo(one.dtype).eps ** 0.5
    scale = float(other.nan_to_num(0, 0, 0).abs().max()) if other.numel() else 0.0
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
