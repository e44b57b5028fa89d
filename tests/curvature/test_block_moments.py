"""The moments of the inputs of a group, and their products with those in the dense network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chita.curvature.block_moments import group_moments, section_inputs
from chita.model.hooks import owners
from chita.model.samples.batch import Batch
from chita.model.sections import Sections, find_sections
from chita.model.weights import Weights
from tests.support.pruning import numbers, seeded

SAMPLES = 12


class Twice(nn.Module):
    """A network that calls its first layer twice, and changes the input of the last in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(torch.tanh(self.first(x))))
        y: Tensor = self.last(x)
        x.mul_(0.0)
        return y


def sections_of(model: nn.Module, batch: Batch) -> Sections:
    return find_sections(model, owners(model, Weights(model)), batch)


def outer(x: Tensor, d: Tensor) -> Tensor:
    return (x.T @ d / len(x))[None].double()


@pytest.fixture
def pair() -> tuple[Twice, Twice, Batch]:
    dense, pruned = seeded(Twice), seeded(Twice)
    pruned.first.weight.data.mul_(0.5)
    return dense, pruned, Batch(((numbers(SAMPLES, 5).float(),), torch.zeros(SAMPLES)), SAMPLES)


@torch.no_grad()
def test_products_pair_the_same_calls_of_both_networks(pair: Any) -> None:
    dense, pruned, batch = pair
    sections, whole = sections_of(pruned, batch), sections_of(dense, batch)
    theirs, _ = section_inputs(whole.replay, 0, whole.layers(0), batch, None)
    first, last = (
        group_moments(sections.replay, 0, group, [(batch, None, theirs)] * 2, sections.layers(0))
        for group in sections.groups[0]
    )
    found = {**first, **last}
    x, d = batch.content[0][0], batch.content[0][0]
    calls = [(x, d)]
    for _ in range(2):
        x, d = torch.tanh(pruned.first(x)), torch.tanh(dense.first(d))
        calls.append((x, d))
    expected = sum(outer(x, d) for x, d in calls[:2]) / 2
    products = found["first.weight"].products
    assert products is not None
    torch.testing.assert_close(products, expected, rtol=1e-5, atol=1e-6)
    moments = found["last.weight"]
    assert moments.products is not None
    torch.testing.assert_close(moments.products, outer(*calls[2]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moments.inputs, outer(x, x), rtol=1e-5, atol=1e-6)


def test_without_the_dense_network_there_are_no_products(pair: Any) -> None:
    _, pruned, batch = pair
    sections = sections_of(pruned, batch)
    found = group_moments(
        sections.replay, 0, sections.groups[0][0], [(batch, None, None)], sections.layers(0)
    )
    assert found["first.weight"].products is None
