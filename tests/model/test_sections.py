"""Which modules of a network are taken for blocks, and which groups its layers form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from chita.curvature.layer_inputs import measurable_layers
from chita.model.samples.batch import Batch
from chita.model.sections import MOST_GROUPS, Sections, find_sections
from chita.model.weights import Weights
from tests.support.pruning import numbers, seeded


class Block(nn.Module):
    """Two layers on one input, one on their sum, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = x + self.c((self.a(x) + self.b(x)).tanh())
        return total


class Net(nn.Module):
    """Layers before, in and after the blocks, which `order` calls."""

    def __init__(self, order: Callable[[nn.ModuleList, Tensor], Tensor]) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.order(self.blocks, self.stem(x)))
        return logits


def in_turn(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    for block in blocks:
        x = block(x)
    return x


def backwards(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    for block in reversed(blocks):
        x = block(x)
    return x


def with_a_skip(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    first = blocks[0](x)
    last: Tensor = blocks[2](blocks[1](first) + first)
    return last


def twice(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    return in_turn(blocks, in_turn(blocks, x))


def sections_of(model: nn.Module, *shape: int) -> Sections:
    model = model.double()
    batch = Batch(((numbers(1, *shape),), torch.zeros(1)), 1)
    found = find_sections(model, measurable_layers(model, Weights(model)), batch)
    assert model.training
    return found


def named(found: Sections) -> list[list[list[list[str]]]]:
    """The names of weights: by section, group and input."""
    return [
        [[[w.name.removesuffix(".weight") for w in one.weights] for one in group] for group in each]
        for each in found.groups
    ]


def test_blocks_in_a_list() -> None:
    found = sections_of(seeded(lambda: Net(in_turn)), 4)
    assert found.names == ("blocks.0", "blocks.1", "blocks.2", "the end")
    blocks = [[[[f"blocks.{n}.a", f"blocks.{n}.b"]], [[f"blocks.{n}.c"]]] for n in range(3)]
    assert named(found) == [[[["stem"]], *blocks[0]], *blocks[1:], [[["head"]]]]
    assert found.output_bytes == 6 * 8 and found.last == 3


@pytest.mark.parametrize("order", [backwards, with_a_skip, twice])
def test_other_orders_have_one_section(order: Callable[[nn.ModuleList, Tensor], Tensor]) -> None:
    found = sections_of(seeded(lambda: Net(order)), 4)
    assert found.names == ("the end",) and found.last == 0
    weights = [name for group in named(found)[0] for one in group for name in one]
    assert sorted(weights) == sorted(
        ["stem", "head", *(f"blocks.{n}.{letter}" for n in range(3) for letter in "abc")]
    )
    if order is twice:  # a group ends only after the last call of its layers
        assert [len(group) for group in found.groups[0]] == [1, 9, 1]


def test_blocks_with_a_weight_in_common_have_one_section() -> None:
    model = seeded(lambda: Net(in_turn))
    assert isinstance(model.blocks, nn.ModuleList)
    model.blocks[2].a.weight = model.blocks[0].a.weight
    assert sections_of(model, 4).names == ("the end",)


def test_layers_in_a_row_are_blocks() -> None:
    layers = [nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)]
    found = sections_of(nn.Sequential(*layers), 5)
    assert named(found) == [[[["0"]]], [[["2"]]], [[["4"]]], []]
    assert found.last == 2


def test_many_groups_are_joined() -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for number in range(11):
                self.add_module(f"l{number:02d}", nn.Linear(3, 3))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.children():
                x = layer(x)
            return x

    (groups,) = sections_of(Chain(), 3).groups
    assert len(groups) <= MOST_GROUPS
    assert [w.name for group in groups for one in group for w in one.weights] == [
        f"l{number:02d}.weight" for number in range(11)
    ]


def test_a_layer_without_a_call_belongs_to_its_block() -> None:
    class Routed(Block):
        def __init__(self) -> None:
            super().__init__()
            self.rare = nn.Linear(6, 6)

    model = Net(in_turn)
    model.blocks = nn.ModuleList(Routed() for _ in range(3))
    found = sections_of(model, 4)
    last = found.groups[1][-1][-1]
    assert last.weights[0].name == "blocks.1.rare.weight" and last.calls == 0


def test_blocks_are_found_by_exact_passes_and_run_in_fast_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sections that run in bfloat16 differ from a plain pass by more than the check allows."""
    monkeypatch.setattr("chita.model.fast_arithmetic._has_bfloat16", lambda place: True)
    monkeypatch.setattr("chita.model.fast_arithmetic.LEAST_CAST", 0)
    model = seeded(lambda: Net(in_turn)).eval()
    batch = Batch(((numbers(2, 4).float(),), torch.zeros(2)), 2)
    found = find_sections(model, measurable_layers(model, Weights(model)), batch)
    assert found.replay.sections == 4 and found.replay.fast
    output = found.replay.run(0, batch).float()
    plain = replace(found.replay, fast=False).run(0, batch)
    assert not torch.equal(output, plain)
    assert torch.allclose(output, plain, atol=0.05)
