from typing import Any

import pytest
import torch

from chita.paper.scale.case import Case, make, prunable_weights
from chita.solver.ranks import ALONE, joined_ranks
from tests.support.gloo import on_ranks

CPU = torch.device("cpu")
MLPNET = Case("n", "mlpnet", 32_360, 7)


@pytest.mark.parametrize(
    ("network", "p"),
    [("mlpnet", 32_360), ("resnet20", 268_336), ("resnet50", 25_502_912)],
)
def test_prunable_weights(network: str, p: int) -> None:
    assert prunable_weights(network) == p


def test_a_network_and_a_random_matrix() -> None:
    made = make(MLPNET, ALONE, CPU)
    stored = made.stored()
    assert stored.shape == (32_360, 7)
    assert made.w0.shape == (32_360,)
    assert made.layout.layers == (40 * 784, 20 * 40, 10 * 20)
    assert torch.equal(made.stored(), stored)  # the same images each time
    random = make(Case("p", None, 1000, 50, block_size=10), ALONE, CPU)
    lengths = random.stored().square().sum(0)
    assert lengths.shape == (50,)
    assert lengths.sub(1).abs().max() < 0.3


def part(rank: int) -> Any:
    with joined_ranks() as ranks:
        made = make(MLPNET, ranks, CPU)
        return made.w0, made.stored(), made.layout.layers


@pytest.mark.slow
def test_ranks_have_their_columns() -> None:
    whole = make(MLPNET, ALONE, CPU)
    (w0, stored, layers), (last_w0, last_stored, _) = on_ranks(2, part)
    assert layers == (16_180,)
    assert torch.equal(torch.cat([w0, last_w0]), whole.w0)
    torch.testing.assert_close(torch.cat([stored, last_stored]), whole.stored())
