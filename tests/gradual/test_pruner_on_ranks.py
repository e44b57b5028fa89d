"""GradualPruner under DistributedDataParallel, on gloo ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from chita.errors import ChitaError
from chita.gradual import GradualPruner
from chita.model.weights import Weights
from tests.gradual.loops import CALIBRATION, OPTIMIZERS, assert_sparse, images, network
from tests.support.gloo import on_ranks
from tests.support.messages import naming

pytestmark = pytest.mark.slow


def still(model: nn.Module) -> nn.Module:
    """Without what draws or keeps statistics: one process and many then compute the same."""
    model.get_submodule("drop").p = 0.0
    model.get_submodule("bn").eval()
    return model


def trained(model: nn.Module, rank: int, size: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Two pruning steps with training between; a rank trains on its share of each batch."""
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    pruner = GradualPruner(model, optimizer, [0.5, 0.9], **CALIBRATION)
    bare = model.module if isinstance(model, DistributedDataParallel) else model
    for sparsity in (0.5, 0.9):
        pruner.step(images())
        for x, t in images():
            optimizer.zero_grad()
            functional.cross_entropy(model(x[rank::size]), t[rank::size]).backward()
            optimizer.step()
            assert_sparse(pruner, bare, sparsity)
    return Weights(bare).vector(), pruner.masks


def prune_on_other_data(rank: int) -> None:
    """Each rank sees its share of the data, as a DistributedSampler gives it."""
    model = network()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    own = images()[rank::2]
    GradualPruner(DistributedDataParallel(model), optimizer, [0.5], **CALIBRATION).step(own)
    w = Weights(model).vector()
    everyones = [torch.empty_like(w), torch.empty_like(w)]
    dist.all_gather(everyones, w)
    assert torch.equal(*everyones), "A has rows from both ranks, and both solve with it"
    apart = GradualPruner(model, optimizer, [0.8], "l-obs", **CALIBRATION)
    with pytest.raises(ChitaError, match=naming("calibration samples", "rank 0", "rank 1")):
        apart.step(own)  # a method that shares no work


def on_a_rank(rank: int) -> Any:
    prune_on_other_data(rank)
    return trained(DistributedDataParallel(still(network())), rank, dist.get_world_size())


def test_ranks_keep_the_same_weights() -> None:
    first, second = on_ranks(2, on_a_rank)
    for found in (first, second):
        if isinstance(found, Exception):
            raise found
    assert torch.equal(first[0], second[0])
    torch.set_num_threads(1)
    alone, masks = trained(still(network()), 0, 1)
    for name, mask in masks.items():
        assert torch.equal(first[1][name], mask)
        assert torch.equal(second[1][name], mask)
    torch.testing.assert_close(first[0], alone, rtol=1e-3, atol=1e-5)
