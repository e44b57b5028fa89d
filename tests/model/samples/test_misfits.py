"""Inputs that a model does not take: the error says what would work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import chita
from chita.errors import ChitaError
from chita.model.language import measure_perplexity
from chita.model.samples.batch import parse_batch
from tests.support.messages import naming
from tests.support.pruning import seeded

VOCABULARY, LARGEST = 40, 51
MASKS = {"model.layers.0.mlp.up_proj.weight": torch.ones(24, 16, dtype=torch.bool)}


def llama() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=24,
    )  # fmt: skip
    return seeded(lambda: transformers.LlamaForCausalLM(config)).eval()


@pytest.fixture
def ids() -> Tensor:
    """Sequences with one token that is not in the vocabulary, in a late batch."""
    tokens = torch.randint(VOCABULARY, (32, 8), generator=torch.Generator().manual_seed(0))
    tokens[29, 3] = LARGEST
    return tokens


def prune(batches: Any) -> Any:
    return chita.prune(llama(), batches, sparsity=0.5, method="sparsegpt", progress=False)


USES: dict[str, Callable[[Tensor], Any]] = {
    "prune": lambda ids: prune([{"input_ids": x, "labels": x} for x in ids.split(4)]),
    "prune lists": lambda ids: prune(ids.tolist()),
    "sensitivity": lambda ids: chita.sensitivity(llama(), [{"input_ids": ids, "labels": ids}]),
    "recover": lambda ids: chita.recover(
        llama(), [{"input_ids": ids}], teacher=llama(), masks=MASKS, progress=False
    ),
    "perplexity": lambda ids: measure_perplexity(llama(), [{"input_ids": ids, "labels": ids}]),
}


@pytest.mark.parametrize("use", list(USES))
def test_token_ids_beyond_the_vocabulary_are_named(use: str, ids: Tensor) -> None:
    with pytest.raises(ChitaError, match=naming(LARGEST, VOCABULARY, VOCABULARY - 1)):
        USES[use](ids)


def test_negative_token_ids_are_named(ids: Tensor) -> None:
    batch = parse_batch(0, {"input_ids": ids.clamp(max=VOCABULARY - 1) - 1})
    with pytest.raises(ChitaError, match=naming(-1, VOCABULARY)):
        batch.outputs(llama())


def test_other_errors_of_a_model_of_tokens_do_not_name_the_vocabulary(ids: Tensor) -> None:
    batch = parse_batch(0, {"input_ids": ids.clamp(max=VOCABULARY - 1), "labels": ids})
    with pytest.raises(ChitaError, match=naming(LARGEST, without="vocabulary")):
        batch.outputs(llama())


def test_types_and_names_that_do_not_fit_are_named() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(ChitaError, match=naming("inputs.to(torch.float32)")):
        parse_batch(0, (torch.zeros(4, 3, dtype=torch.float64), torch.zeros(4))).outputs(model)
    with pytest.raises(ChitaError, match=naming("input", repr("x"))):
        parse_batch(0, {"x": torch.zeros(4, 3)}).outputs(model)
