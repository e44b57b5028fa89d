"""Hugging Face models, built small: what is pruned, the gradients, the data they come with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

import chita
from chita import PruneResult
from chita.curvature.fisher import gradient_matrix
from chita.errors import ChitaError
from chita.model.distill import distilled
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from tests.curvature.truth import Messages
from tests.support.messages import naming
from tests.support.pruning import numbers, seeded

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}
GPT2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
T5 = {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 3}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def build(kind: str) -> nn.Module:
    """A float64 model of `kind` with dropout, in training mode."""
    t = transformers
    models = {
        "classifier": lambda: t.BertForSequenceClassification(t.BertConfig(**SIZES, num_labels=3)),
        "encoder": lambda: t.BertModel(t.BertConfig(**SIZES)),
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(**GPT2, **TOKENS)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**SIZES, num_key_value_heads=1)),
        "t5": lambda: t.T5ForConditionalGeneration(t.T5Config(**T5, decoder_start_token_id=0)),
        "vit": lambda: t.ViTForImageClassification(
            t.ViTConfig(**VIT, intermediate_size=24, image_size=8, patch_size=4)
        ),
    }
    return seeded(models[kind]).double().train()


def inputs_of(kind: str, samples: int = 20) -> dict[str, Tensor]:
    """What a model of `kind` takes, with padding."""
    generator = torch.Generator().manual_seed(0)
    if kind == "vit":
        return {"pixel_values": numbers(samples, 3, 8, 8)}
    tokens = torch.randint(3, 40, (samples, 7), generator=generator)
    lengths = torch.randint(2, 8, (samples, 1), generator=generator)
    inputs = {"input_ids": tokens, "attention_mask": (torch.arange(7) < lengths).long()}
    return {**inputs, "labels": tokens.flip(1)} if kind == "t5" else inputs


def prune(model: nn.Module, batches: Any, **keywords: Any) -> PruneResult:
    defaults = {"sparsity": 0.5, "stages": 2, "batch": 2, "ridge": 0.01, "method": "chita++"}
    return chita.prune(model, batches, progress=False, **{**defaults, **keywords}, recover=False)


def by_hand(values: list[Tensor], weights: Weights) -> Tensor:
    """The gradients of the values, (p, n)."""
    parameters = [weight.parameter for weight in weights]
    rows = [torch.autograd.grad(value, parameters, materialize_grads=True) for value in values]
    return torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in rows], 1)


@pytest.mark.parametrize("kind", ["classifier", "encoder", "gpt2", "llama", "t5", "vit"])
def test_rows_without_labels(kind: str) -> None:
    """Tokens of a sample add up, padding has no part, dropout is off: as plain autograd says."""
    model, inputs = build(kind), inputs_of(kind)
    weights = Weights(model)
    stream, dense = distilled(model, [inputs], "distill", 0)
    with Messages() as messages:
        found = gradient_matrix(model, weights, stream, rows=10, batch=2, loss=dense.row)
    assert bool(messages.texts) == (kind == "t5")  # row by row: its position bias has no samples
    assert model.training
    assert found.loss == pytest.approx(0, abs=1e-12)
    stream, dense = distilled(model, [inputs], "distill", 0)
    model.eval()
    values = []
    for batch in stream.take(20, 2):
        assert isinstance(batch.content, tuple)
        ((keywords,), targets) = batch.content
        values.append(dense.row(model(**keywords), targets))
    torch.testing.assert_close(found.matrix.whole(), by_hand(values, weights))


@pytest.mark.parametrize("kind", ["classifier", "vit"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_rows_of_pairs_of_a_dict_and_labels(kind: str, wrapped: bool) -> None:
    model, inputs = build(kind), inputs_of(kind)
    labels = torch.arange(20) % 3
    given = transformers.BatchEncoding(inputs) if wrapped else inputs
    weights = Weights(model)
    with Messages() as messages:
        found = gradient_matrix(model, weights, SampleStream([(given, labels)]), rows=10, batch=2)
    assert messages.texts == []
    model.eval()
    values = [
        functional.cross_entropy(
            model(**{name: x[i : i + 2] for name, x in inputs.items()}).logits, labels[i : i + 2]
        )
        for i in range(0, 20, 2)
    ]
    torch.testing.assert_close(found.matrix.whole(), by_hand(values, weights))


def test_pairs_of_pixels_and_labels_are_the_same_as_dicts_with_labels() -> None:
    inputs, labels = inputs_of("vit", 24), torch.arange(24) % 3
    pairs, dicts = build("vit"), build("vit")
    prune(pairs, [(inputs["pixel_values"], labels)])
    prune(dicts, [{**inputs, "labels": labels}])
    torch.testing.assert_close(Weights(pairs).vector(), Weights(dicts).vector())


def test_a_data_loader_of_dicts_and_a_model_that_still_generates() -> None:
    inputs = inputs_of("gpt2")
    samples = [{name: x[i] for name, x in inputs.items()} for i in range(20)]
    model = build("gpt2")
    result = prune(
        model, DataLoader(samples, batch_size=5), loss="distill", ridge="auto", method="auto"
    )
    first = "transformer.h.0.attn.c_attn.weight"
    assert result.masks[first].shape == (16, 48)  # (inputs, outputs), as Conv1D has it
    assert (result.weights, result.nonzeros) == (2 * 12 * 16 * 16, 12 * 16 * 16)
    assert bool((dict(model.named_parameters())[first] != 0).eq(result.masks[first]).all())
    prompt = {name: x[:2, :2] for name, x in inputs.items()}
    assert model.generate(**prompt, max_new_tokens=3, min_new_tokens=3).shape == (2, 5)


def test_a_tied_head_is_pruned_once_and_stays_tied_when_asked_for() -> None:
    model, inputs = build("gpt2"), inputs_of("gpt2")
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    result = prune(model, [{**inputs, "labels": labels}], include=["lm_head.weight", "*.c_fc.*"])
    assert "transformer.wte.weight" in result.masks
    assert "lm_head.weight" not in result.masks
    head = model.get_output_embeddings().weight
    assert head is model.get_input_embeddings().weight
    assert torch.equal(head != 0, result.masks["transformer.wte.weight"])


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_sequences_whose_labels_are_all_ignored_do_not_count(kind: str) -> None:
    """A mean over no labels is 0/0: half of the sequences have none, and others have few."""
    inputs = inputs_of(kind, 60)
    labels = inputs.get("labels", inputs["input_ids"]).clone()
    labels[::2, 1:] = -100
    labels[::4, 0] = -100
    labels[1::4, 3:] = -100
    if kind == "t5":  # which predicts the first label, too
        labels[::2] = -100
    parts = [
        {k: v[i : i + 6] for k, v in {**inputs, "labels": labels}.items()} for i in range(0, 60, 6)
    ]
    model = build(kind)
    result = chita.prune(model, parts, sparsity=0.5, budget="20 steps", progress=False)
    assert result.stages[-1].recovered is not None
    assert all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values())
    found = chita.recover(model, parts, teacher=build(kind), budget="20 steps", progress=False)
    assert found.samples == 51  # labels are not used


def test_a_dict_without_labels_needs_distill() -> None:
    with pytest.raises(ChitaError, match=naming(".loss", "loss='distill'")):
        prune(build("gpt2"), [inputs_of("gpt2")])
