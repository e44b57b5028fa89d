"""A small random Llama and BERT with a tokenizer of bytes, for quick runs without any download."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chita.references.huggingface_files import quiet

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
BYTES = 256
WORDS = ("the", "river", "bank", "stone", "green", "light", "over", "under", "walks", "sings")


def write_small_llama(folder: Path, seed: int = 0) -> Path:
    """Write a folder with a random Llama and a tokenizer whose tokens are bytes.

    Args:
        folder: the folder, which is created; its old files are replaced.
        seed: the seed of the weights.

    Returns:
        The folder.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=BYTES,
        tie_word_embeddings=True,
        num_key_value_heads=1,
        max_position_embeddings=64,
        **SIZES,
    )
    return _write(folder, partial(LlamaForCausalLM, config), seed)


def write_small_bert(folder: Path, seed: int = 0) -> Path:
    """Write a folder with a random BERT and a tokenizer whose tokens are bytes.

    Args:
        folder: the folder, which is created; its old files are replaced.
        seed: the seed of the weights.

    Returns:
        The folder.
    """
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=BYTES, max_position_embeddings=128, initializer_range=0.2, **SIZES
    )
    return _write(folder, partial(BertModel, config, add_pooling_layer=False), seed)


def _write(folder: Path, build: Callable[[], Any], seed: int) -> Path:
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        build().save_pretrained(folder)
    write_byte_tokenizer(folder)
    return folder


def write_byte_tokenizer(folder: Path) -> None:
    """Write a tokenizer whose tokens are the 256 bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: Any = PreTrainedTokenizerFast(tokenizer_object=tokenizer)  # type: ignore[no-untyped-call]
    fast.save_pretrained(folder)


def random_words(count: int, seed: int) -> str:
    """Return a text of random words."""
    drawn: Tensor = torch.randint(
        len(WORDS), (count,), generator=torch.Generator().manual_seed(seed)
    )
    return " ".join(WORDS[number] for number in drawn.tolist())
