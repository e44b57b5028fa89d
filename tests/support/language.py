"""Small language models in folders, with a tokenizer of bytes, and texts for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from chita.paper.small_language import random_words, write_byte_tokenizer, write_small_llama

CONTEXT = 32


def write_llama(folder: Path, **changes: Any) -> Path:
    """A Llama in a folder; `changes` are arguments of its configuration, and dtype."""
    if not changes:
        return write_small_llama(folder)
    transformers = pytest.importorskip("transformers")
    dtype = changes.pop("dtype", torch.float32)
    sizes = {"vocab_size": 256, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
             "num_attention_heads": 2, "max_position_embeddings": 64, **changes}  # fmt: skip
    return _write(transformers.LlamaForCausalLM, transformers.LlamaConfig(**sizes), folder, dtype)


def write_gpt2(folder: Path, vocabulary: int = 256) -> Path:
    """A GPT-2, whose output layer shares the weight of the embedding."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_embd=16, n_layer=2, n_head=2, n_positions=CONTEXT,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return _write(transformers.GPT2LMHeadModel, config, folder, torch.float32)


def _write(kind: Any, config: Any, folder: Path, dtype: torch.dtype) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kind(config).to(dtype).save_pretrained(folder)
    write_byte_tokenizer(folder)
    return folder


def write_text(path: Path, words: int = 1200, seed: int = 0) -> Path:
    path.write_text(random_words(words, seed), encoding="utf-8")
    return path


def content(folder: Path) -> dict[str, bytes]:
    """The files of a folder, to compare it before and after."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
