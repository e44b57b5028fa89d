"""Sequences of tokens for language models, their perplexity, and the memory of their scores."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita.curvature import gradient_rows
from chita.errors import ChitaError
from chita.model import distill, token_models
from chita.model.distill import Unanswered, distilled
from chita.model.language import check_context, measure_perplexity, sequence_batches
from chita.model.losses import mean_loss
from chita.model.samples.arrays import InputSpec
from chita.model.samples.batch import parse_batch
from chita.model.score import Metric
from tests.support.messages import naming
from tests.support.pruning import seeded

transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
         "num_attention_heads": 2, "max_position_embeddings": 24}  # fmt: skip


def llama(**changes: Any) -> nn.Module:
    config = transformers.LlamaConfig(**{"vocab_size": 40, **SIZES, **changes})
    return seeded(lambda: transformers.LlamaForCausalLM(config)).eval()


def bert() -> nn.Module:
    config = transformers.BertConfig(vocab_size=40, **SIZES)
    return seeded(lambda: transformers.BertModel(config)).eval()


def sequences(count: int = 6, context: int = 12, top: int = 40) -> Tensor:
    return torch.randint(top, (count, context), generator=torch.Generator().manual_seed(0))


def test_perplexity_is_that_of_the_next_tokens_by_hand() -> None:
    model, tokens = llama(), sequences()
    calls: list[tuple[int, int]] = []
    found = measure_perplexity(
        model, sequence_batches(model, tokens, "text"), lambda *done: calls.append(done)
    )
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
    by_hand = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    assert found.loss == pytest.approx(float(by_hand), rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(float(by_hand)), rel=1e-4)
    assert (found.sequences, found.tokens, calls[-1]) == (6, 6 * 11, (6, 6))


def test_batches_are_as_large_as_their_scores_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = llama(), sequences(7)
    whole = measure_perplexity(model, sequence_batches(model, tokens, "text"))
    monkeypatch.setattr(token_models, "SCORES", 2 * 12 * 40)
    batches = sequence_batches(model, tokens, "text")
    assert [len(batch["input_ids"]) for batch in batches] == [2, 2, 2, 1]
    assert measure_perplexity(model, batches).loss == pytest.approx(whole.loss, rel=1e-5)
    monkeypatch.setattr(token_models, "SCORES", 1)
    assert len(sequence_batches(model, tokens, "text")) == 7


def test_a_vocabulary_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ChitaError, match=naming("mine.txt", 39, 31)):
        sequence_batches(llama(vocab_size=32), torch.full((1, 4), 39), "mine.txt")


def test_the_context_is_limited_by_the_model() -> None:
    assert check_context(llama(), None, 1024) == 24
    assert check_context(llama(), None, 16) == 16
    assert check_context(llama(), 20, 1024) == 20
    assert check_context(nn.Linear(2, 2), None, 1024) == 1024
    for wrong in (25, 1, 0, -3):
        with pytest.raises(ChitaError, match=naming("context", wrong)):
            check_context(llama(), wrong, 1024)


def test_an_encoder_gets_no_labels_and_has_no_perplexity() -> None:
    model = bert()
    batches = sequence_batches(model, sequences(), "text")
    assert [*batches[0]] == ["input_ids"]
    with pytest.raises(ChitaError, match=naming("BertModel")):
        measure_perplexity(model, batches)


def test_weights_that_are_not_finite_have_no_perplexity() -> None:
    model = llama()
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    with pytest.raises(ChitaError, match="nan"):
        measure_perplexity(model, sequence_batches(model, sequences(), "text"))


def test_padding_has_no_part_in_the_loss() -> None:
    """The loss of a padded sequence is that of the sequence alone."""
    model, tokens = llama(), sequences(1, 8)
    padded = torch.cat([tokens, torch.zeros(1, 4, dtype=torch.int64)], 1)
    mask = (torch.arange(12) < 8).long().unsqueeze(0)
    given = {"input_ids": padded, "attention_mask": mask, "labels": padded}
    alone = mean_loss(model, [{"input_ids": tokens, "labels": tokens}])
    assert mean_loss(model, [given]) == pytest.approx(alone, rel=1e-5)
    assert torch.equal(given["labels"], padded)  # the user's tensors stay
    unmasked = parse_batch(0, given, InputSpec())
    assert float(model(**unmasked.content).loss.detach()) != pytest.approx(alone, rel=1e-3)


def test_large_answers_are_computed_when_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = llama(), sequences(8)
    other = llama(rms_norm_eps=0.1)

    def losses(most: int) -> tuple[list[Any], float, float | None]:
        monkeypatch.setattr(distill, "STORED_BYTES", most)
        stream, dense = distilled(model, [{"input_ids": tokens}], "distill", 0)
        held = stream.hold_out([4], 2, rest=4)[0]
        score = Metric(model, [{"input_ids": tokens}], "distill")(other)
        return held, mean_loss(other, held, dense.divergence), score.loss

    stored, now, later = losses(1 << 30), losses(1 << 30), losses(0)
    assert not isinstance(stored[0][0], Unanswered) and isinstance(later[0][0], Unanswered)
    held = later[0][0]
    kept = sum(tensor.nbytes for tensor in distill.tensors_of(held.content))
    assert kept <= held.size * (12 + 1) * 8  # tokens and a number, without scores
    assert now[1:] == later[1:] and later[1] > 0
    assert held[:1].to(torch.device("cpu")).content[1]["answer"].shape == (1, 12, 40)


@pytest.mark.parametrize("loss", ["distill", None])
def test_token_ids_are_pruned_one_sequence_at_a_time(
    monkeypatch: pytest.MonkeyPatch, loss: str | None
) -> None:
    """With room for one sequence, no forward pass has more; tied embeddings stay tied and dense."""
    monkeypatch.setattr(token_models, "SCORES", 12 * 40)
    monkeypatch.setattr(distill, "STORED_BYTES", 0)
    monkeypatch.setattr(gradient_rows, "CHUNK_BYTES", 1)  # rows of A at once, by measured bytes
    model, tokens = llama(tie_word_embeddings=True), sequences(24)
    seen: set[int] = set()
    model.lm_head.register_forward_hook(lambda layer, args, out: seen.add(len(out)))
    batches = tokens if loss else {"input_ids": tokens, "labels": tokens}
    result = chita.prune(
        model, batches, sparsity=0.5, loss=loss, method="chita-bso", recover=True,
        budget="4 steps", progress=False,
    )  # fmt: skip
    assert seen == {1}
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert bool((model.lm_head.weight != 0).all())
    assert result.sparsity == pytest.approx(0.5, abs=1e-3) and result.training_steps > 0
