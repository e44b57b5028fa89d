"""What "auto" stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import chita
from chita import PruneConfig
from chita.pruning.default_method import LAYER_WISE, config_for
from tests.pruning.block_by_block.networks import build

pytest.importorskip("transformers")


@pytest.mark.parametrize("kind", ["llama", "gpt2", "opt"])
@pytest.mark.parametrize("recover", [None, True, False])
def test_a_language_model_is_pruned_layer_by_layer(kind: str, recover: bool | None) -> None:
    found = config_for(build(kind), PruneConfig(sparsity=0.5, recover=recover))
    assert found.method == LAYER_WISE and found.recovers == (recover is not False)


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_other_networks_keep_the_search(kind: str) -> None:
    assert config_for(build(kind), PruneConfig(sparsity=0.5)).method == "auto"
    assert config_for(nn.Linear(2, 2), PruneConfig(sparsity=0.5)).method == "auto"


@pytest.mark.parametrize(
    "given",
    [
        {"method": "magnitude"},
        {"max_loss_increase": 0.1},
        {"metric": "fisher"},
        {"include": "*norm.weight"},
    ],
)
def test_options_that_layers_do_not_have_keep_the_method(given: dict[str, Any]) -> None:
    config = PruneConfig(sparsity=0.5, **given)
    assert config_for(build("llama"), config) == config


def test_one_sweep_and_then_training() -> None:
    ids = torch.randint(0, 40, (16, 8), generator=torch.Generator().manual_seed(0))
    batches = [{"input_ids": part, "labels": part} for part in ids.split(4)]
    result = chita.prune(
        build("llama").float(), batches, sparsity=0.5, budget="130 steps", progress=False
    )
    assert len(result.stages) == 1 and result.training_steps >= 130
