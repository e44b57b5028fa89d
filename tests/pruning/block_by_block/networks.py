"""Small transformers with random weights, and their layers in the order of their calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.support.pruning import numbers, seeded

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
}
GPT2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 3}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

# The name of a block, then the groups of layers: before the blocks, in a block, and after them.
LAYERS = {
    "llama": (
        "model.layers.{}.",
        [],
        [
            ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            ["self_attn.o_proj"],
            ["mlp.gate_proj", "mlp.up_proj"],
            ["mlp.down_proj"],
        ],
        [["lm_head"]],
    ),
    "gpt2": (
        "transformer.h.{}.",
        [],
        [["attn.c_attn"], ["attn.c_proj"], ["mlp.c_fc"], ["mlp.c_proj"]],
        [],
    ),
    "opt": (
        "model.decoder.layers.{}.",
        [],
        [
            ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            ["self_attn.out_proj"],
            ["fc1"],
            ["fc2"],
        ],
        [],
    ),
    "bert": (
        "bert.encoder.layer.{}.",
        [],
        [
            ["attention.self.query", "attention.self.key", "attention.self.value"],
            ["attention.output.dense"],
            ["intermediate.dense"],
            ["output.dense"],
        ],
        [["bert.pooler.dense"], ["classifier"]],
    ),
    "vit": (
        "vit.layers.{}.",
        [["vit.embeddings.patch_embeddings.projection"]],
        [
            ["attention.q_proj", "attention.k_proj", "attention.v_proj"],
            ["attention.o_proj"],
            ["mlp.fc1"],
            ["mlp.fc2"],
        ],
        [["classifier"]],
    ),
}


def groups_of(kind: str) -> list[list[str]]:
    """Return the names of the layers by group, in the order of their calls."""
    prefix, before, block, after = LAYERS[kind]
    blocks = [[prefix.format(n) + name for name in group] for n in range(2) for group in block]
    return [*before, *blocks, *after]


def build(kind: str) -> nn.Module:
    """Return a float64 model in training mode, with dropout."""
    import transformers as t

    models: dict[str, Any] = {
        "llama": lambda: t.LlamaForCausalLM(
            t.LlamaConfig(**SIZES, **SPECIAL, intermediate_size=24, num_key_value_heads=1)
        ),
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(**GPT2, **SPECIAL)),
        "opt": lambda: t.OPTForCausalLM(
            t.OPTConfig(**SIZES, **SPECIAL, ffn_dim=24, word_embed_proj_dim=16)
        ),
        "bert": lambda: t.BertForSequenceClassification(
            t.BertConfig(**SIZES, intermediate_size=24, num_labels=3)
        ),
        "vit": lambda: t.ViTForImageClassification(
            t.ViTConfig(**VIT, intermediate_size=24, image_size=8, patch_size=4)
        ),
    }
    return seeded(models[kind]).double().train()


def inputs_of(kind: str, samples: int = 24) -> dict[str, Tensor]:
    """Return samples with labels, and with padding where there are tokens."""
    generator = torch.Generator().manual_seed(0)
    if kind == "vit":
        return {"pixel_values": numbers(samples, 3, 8, 8), "labels": torch.arange(samples) % 3}
    tokens = torch.randint(3, 40, (samples, 7), generator=generator)
    lengths = torch.randint(2, 8, (samples, 1), generator=generator)
    mask = (torch.arange(7) < lengths).long()
    labels = torch.arange(samples) % 3 if kind == "bert" else tokens
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}
