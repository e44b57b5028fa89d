"""Models of Hugging Face that read tokens: what they declare about their inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

MASK = "attention_mask"  # the keyword of a mask with 0 at padding
DECODER = "decoder_"  # before the keywords of a decoder that has an encoder
TOKENS = ("input_ids", f"{DECODER}input_ids")  # the keywords of token ids
# The scores of all tokens at each position of a forward pass: 256 MB in float32, or a part of the
# memory of a GPU. Their probabilities and gradients need several times as much.
SCORES = 1 << 26
GPU_PART = 256  # a score for each so many bytes of a GPU


def predicts_tokens(model: nn.Module) -> bool:
    """Return whether a model predicts each token of a sequence from those before it."""
    generates = getattr(model, "can_generate", None)
    return callable(generates) and bool(generates()) and not has_decoder(model)


def has_decoder(model: nn.Module) -> bool:
    """Return whether a model has an encoder and a decoder, each with positions of its own."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def vocabulary_of(model: nn.Module) -> int | None:
    """Return the number of token ids that a model reads; None if it has no embedding."""
    return _rows(model, "get_input_embeddings")


def longest_context(model: nn.Module) -> int | None:
    """Return the most tokens in a sequence; None if the model does not declare it."""
    most = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    return most if isinstance(most, int) and most > 0 else None


def positions_at_once(model: nn.Module) -> int | None:
    """Return how many positions of tokens fit into a forward pass; None without scores of tokens.

    A language model gives a score for every token of its vocabulary at each position. They need
    more memory than all else, and depend on the samples: 200 MB for one of 1024 tokens is common.
    """
    scores = _rows(model, "get_output_embeddings")
    if not scores:
        return None
    place = next(model.parameters()).device
    room = SCORES
    if place.type == "cuda":
        room = max(room, torch.cuda.mem_get_info(place)[1] // GPU_PART)
    return max(1, room // scores)


@contextmanager
def without_cache(model: nn.Module) -> Iterator[None]:
    """Let no part of a model store the keys and values of its attention, until the end.

    Only the generation of text uses them. They take memory, and make the capture of a CUDA graph
    fail.
    """
    found: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    configs = [config for config in found if getattr(config, "use_cache", None) is True]
    try:
        for config in configs:
            config.use_cache = False
        yield
    finally:
        for config in configs:
            config.use_cache = True


def _rows(model: nn.Module, getter: str) -> int | None:
    """Return the rows of the weight of an embedding, or of the output layer."""
    find = getattr(model, getter, None)
    try:
        found = find() if callable(find) else None
    except NotImplementedError:  # a model without such a layer
        return None
    weight = getattr(found, "weight", None)
    return len(weight) if isinstance(weight, torch.Tensor) and weight.ndim == 2 else None
