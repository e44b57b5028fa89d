"""Random masks: the supports of chita.prune, without its choice."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from chita.errors import ChitaError
from chita.pruning.random_mask import apply_random_mask
from tests.support.messages import naming


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(4, 16, 3), nn.Flatten(), nn.Linear(64, 32, bias=False))


def zeros(network: nn.Module) -> tuple[int, int]:
    weights = [p for p in network.parameters() if p.ndim > 1]
    return sum(int((w == 0).sum()) for w in weights), sum(w.numel() for w in weights)


@pytest.mark.parametrize("at", [0.0, 0.5, 0.9])
def test_the_share_of_zeros(at: float) -> None:
    network = model()
    apply_random_mask(network, at)
    found, p = zeros(network)
    assert p - found == int((1 - at) * p)


def test_a_pattern_holds_in_every_group() -> None:
    network = model()
    apply_random_mask(network, "2:4")
    for weight in (network[0].weight.flatten(2).transpose(1, 2), network[2].weight):
        assert ((weight.reshape(-1, 4) != 0).sum(1) == 2).all()


def test_kept_weights_are_scaled_and_the_choice_does_not_follow_their_size() -> None:
    dense, network = model(), model()
    with torch.no_grad():
        for each in (dense, network):
            each[2].weight.mul_(1e-3)  # magnitude pruning would remove this layer first
    apply_random_mask(network, 0.75)
    for before, after in ((dense[0], network[0]), (dense[2], network[2])):
        kept = after.weight != 0
        assert 0.15 < kept.double().mean() < 0.35
        scale = kept.double().mean().rsqrt()
        torch.testing.assert_close(
            after.weight[kept], (before.weight[kept].double() * scale).float()
        )
    torch.testing.assert_close(network[0].bias, dense[0].bias)


def test_the_seed_decides() -> None:
    one, same, other = model(), model(), model()
    for network, seed in ((one, 1), (same, 1), (other, 2)):
        apply_random_mask(network, 0.5, seed=seed)
    assert torch.equal(one[2].weight, same[2].weight)
    assert not torch.equal(one[2].weight != 0, other[2].weight != 0)


@pytest.mark.parametrize("at", [1.0, -0.1, 90.0])
def test_a_share_that_is_none(at: float) -> None:
    network = model()
    before = network[2].weight.detach().clone()
    with pytest.raises(ChitaError, match=naming("sparsity", str(at))):
        apply_random_mask(network, at)
    assert torch.equal(network[2].weight, before)
