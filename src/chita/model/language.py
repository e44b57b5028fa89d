"""Language models: the sequences that they take, and their perplexity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chita.errors import ChitaError, is_count, require
from chita.model.forward import device_of, evaluating
from chita.model.losses import batch_loss
from chita.model.samples.arrays import InputSpec
from chita.model.samples.batch import parse_batch
from chita.model.token_models import longest_context, predicts_tokens, vocabulary_of

SIZE = 16  # the most sequences in a batch
MOST_LOSS = 700.0  # exp overflows above it
LEAST_CONTEXT = 2  # a token, and the one that it predicts

Sequences = dict[str, Tensor]  # a batch: the keywords of the model


def check_context(model: nn.Module, context: int | None, default: int) -> int:
    """Return the tokens in a sequence: those given, or the default if the model takes as many.

    Raises:
        ChitaError: the model does not take as many.
    """
    most = longest_context(model)
    if context is None:
        return default if most is None else min(default, most)
    require(
        "context (--context)",
        context,
        lambda given: is_count(given) and given >= LEAST_CONTEXT,
        f"an integer of at least {LEAST_CONTEXT}",
    )
    if most is not None and context > most:
        raise ChitaError(
            f"context (--context) is {context}, but the model takes sequences of at most {most} "
            "tokens"
        )
    return context


def sequence_batches(model: nn.Module, sequences: Tensor, name: str) -> list[Sequences]:
    """Return sequences as batches of keywords: input_ids, and labels for the model's own loss.

    A model that does not predict the next token gets no labels; loss="distill" needs none. A batch
    is as large as the scores of a forward pass allow.

    Args:
        model: a model of token ids.
        sequences: token ids, (sequences, context).
        name: the name of the text, for messages.

    Raises:
        ChitaError: a token id is not in the vocabulary of the model.
    """
    vocabulary = vocabulary_of(model)
    last = int(sequences.max())
    if vocabulary is not None and last >= vocabulary:
        raise ChitaError(
            f"the tokens of {name} do not fit the model: the tokenizer gives the id {last}, and "
            f"the vocabulary of the model has the ids 0 to {vocabulary - 1}; is the tokenizer that "
            "of the model?"
        )
    size = InputSpec.of(model).fitting(sequences.shape[1], SIZE)
    parts = torch.split(sequences, size)
    if not predicts_tokens(model):
        return [{"input_ids": part} for part in parts]
    return [{"input_ids": part, "labels": part} for part in parts]


@dataclass(frozen=True)
class Perplexity:
    """How well a model predicts a text.

    Attributes:
        perplexity: exp of the mean loss of a predicted token.
        loss: that mean.
        tokens: the predicted tokens; the first of each sequence is not predicted.
        sequences: the number of sequences.
    """

    perplexity: float
    loss: float
    tokens: int
    sequences: int


@torch.no_grad()
def measure_perplexity(
    model: nn.Module,
    batches: Sequence[Sequences],
    progress: Callable[[int, int], None] | None = None,
) -> Perplexity:
    """Compute the perplexity of a text, in eval mode.

    Args:
        model: a model that predicts the next token.
        batches: the sequences, all of one length; see `sequence_batches`.
        progress: called with the finished sequences, and the number of all.

    Raises:
        ChitaError: the model does not predict tokens, or its loss is not finite.
    """
    if not predicts_tokens(model):
        raise ChitaError(
            f"{type(model).__name__} does not predict the next token, so that it has no "
            "perplexity: give a causal language model"
        )
    place = device_of(model)
    count = sum(len(batch["input_ids"]) for batch in batches)
    total, done = 0.0, 0
    with evaluating(model):
        for number, given in enumerate(batches):
            batch = parse_batch(number, given).to(place)
            total += float(batch_loss(model, batch, None)) * batch.size
            done += batch.size
            if progress is not None:
                progress(done, count)
    loss = total / count
    if not loss < MOST_LOSS:
        raise ChitaError(
            f"the mean loss of a token is {loss}, so that there is no perplexity: are all weights "
            "of the model finite?"
        )
    predicted = count * (batches[0]["input_ids"].shape[1] - 1)
    return Perplexity(math.exp(loss), loss, predicted, count)
