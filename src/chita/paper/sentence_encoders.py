"""The sentence encoders of the benchmark, and the sentences to prune them with and to measure on.

The embedding of a sentence is the mean of its last hidden states, scaled to length 1. Half the
squared distance of two embeddings is therefore one minus their cosine.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.data.sentences import read_sentences
from chita.data.text import Encode
from chita.model.forward import evaluating
from chita.paper.ranks import rank_correlation
from chita.paper.small_language import random_words, write_small_bert
from chita.paper.wikitext import wikitext_files
from chita.references.huggingface_files import load_tokenizer
from chita.references.huggingface_model import huggingface_network
from chita.zoo.weights import get_weights

CALIBRATION, TEST = 2000, 1000  # sentences
MOST_TOKENS = 128  # of a sentence, with its first and last one
STEP = 32  # sentences are padded to a multiple of so many tokens
BATCH = 32  # sentences in a batch
SMALL, SMALL_SENTENCES, SMALL_WORDS = "small-bert", 200, 8

Sentences = dict[str, Tensor]  # a batch: the keywords of the encoder


class SentenceEncoder(nn.Module):
    """An encoder whose embeddings are normalised means of the last hidden states.

    Args:
        body: a model of Hugging Face that returns last hidden states, (B, L, d).
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the embeddings, (B, d), of sentences with padding, (B, L)."""
        states = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        counted = attention_mask.unsqueeze(-1).to(states)
        return functional.normalize((states * counted).sum(1) / counted.sum(1), dim=1)


@dataclass(frozen=True)
class SentenceTexts:
    """The texts of an encoder.

    Attributes:
        calibration: sentences to calibrate on, before a choice.
        test: sentences to measure on, before a choice.
    """

    calibration: Sequence[str]
    test: Sequence[str]


class EncoderSubject:
    """A sentence encoder in a folder, and its sentences.

    Args:
        name: the name in keys and tables.
        find: returns the folder of Hugging Face; called once, when the encoder is used.
        place: the device of the encoder.
        read: returns the texts; called once.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[], Path],
        place: torch.device,
        read: Callable[[], SentenceTexts],
    ) -> None:
        self.name, self.place, self._find, self._read = name, place, find, read

    @cached_property
    def folder(self) -> Path:
        """The folder of Hugging Face."""
        return self._find()

    def build(self) -> nn.Module:
        """Return a new encoder with the trained weights."""
        return copy.deepcopy(self._dense)

    def calibration(self, model: nn.Module, seed: int) -> list[Sentences]:
        """Return batches of the sentences to calibrate on, in random order."""
        chosen = choose(self._texts.calibration, CALIBRATION, seed)
        return sentence_batches(chosen, self._encode, seed)

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """Return how close the embeddings of the test sentences are to the dense ones.

        Returns:
            cosine: the mean cosine of a sentence to its dense embedding.
            cosine_error: the standard error of that mean over the sentences.
            rank_correlation: Spearman's correlation of the similarities of all pairs of sentences
                with those of the dense encoder.
            sentences: the number of sentences.
        """
        dense, found = self._dense_embeddings, embeddings(model, self._test, self.place)
        cosines = (dense * found).sum(1)
        return {
            "cosine": float(cosines.mean()),
            "cosine_error": float(cosines.std()) / math.sqrt(len(cosines)),
            "rank_correlation": rank_correlation(similarities(dense), similarities(found)),
            "sentences": len(cosines),
        }

    @cached_property
    def _dense(self) -> nn.Module:
        network = huggingface_network(f"hf:{self.folder}", {"add_pooling_layer": False})
        assert network.build_trained is not None
        return SentenceEncoder(network.build_trained()).eval().to(self.place)

    @cached_property
    def _texts(self) -> SentenceTexts:
        return self._read()

    @cached_property
    def _encode(self) -> Encode:
        return load_tokenizer(self.folder)

    @cached_property
    def _test(self) -> list[Sentences]:
        """The test sentences, which are the same for all seeds."""
        return sentence_batches(choose(self._texts.test, TEST, 0), self._encode, 0)

    @cached_property
    def _dense_embeddings(self) -> Tensor:
        return embeddings(self._dense, self._test, self.place)


def minilm(texts: Path | None, place: torch.device, out: Path) -> EncoderSubject:
    """Return all-MiniLM-L6-v2, with WikiText-2.

    Args:
        texts: the folder with wiki.test.raw and valid.txt.
        place: the device of the encoder.
        out: the folder of the benchmark.

    Raises:
        ChitaError: the files are missing, or the weights cannot be fetched.
    """
    files, folder = wikitext_files(texts), get_weights("minilm")
    return EncoderSubject(
        "all-MiniLM-L6-v2",
        lambda: folder,
        place,
        lambda: SentenceTexts(*map(read_sentences, files)),
    )


def small(texts: Path | None, place: torch.device, out: Path) -> EncoderSubject:
    """Return a small random BERT, which is written on first use, with random words as sentences."""

    def read() -> SentenceTexts:
        seeds = range(2 * SMALL_SENTENCES)
        drawn = [random_words(3 + seed % SMALL_WORDS, seed) for seed in seeds]
        return SentenceTexts(drawn[::2], drawn[1::2])

    return EncoderSubject(SMALL, lambda: write_small_bert(out / "networks" / SMALL), place, read)


def choose(sentences: Sequence[str], count: int, seed: int) -> list[str]:
    """Draw at most `count` of the sentences, in random order."""
    order = torch.randperm(len(sentences), generator=torch.Generator().manual_seed(seed))
    return [sentences[number] for number in order[:count].tolist()]


def sentence_batches(sentences: Sequence[str], encode: Encode, seed: int) -> list[Sentences]:
    """Return sentences as batches of token ids and attention masks, (B, L), in random order.

    The sentences of a batch have the same length after padding, so that little padding is needed.
    A longer sentence than MOST_TOKENS keeps its first tokens and its last one, which ends it.
    """
    by_length: dict[int, list[list[int]]] = {}
    for sentence in sentences:
        ids = list(encode(sentence))
        ids = ids if len(ids) <= MOST_TOKENS else [*ids[: MOST_TOKENS - 1], ids[-1]]
        by_length.setdefault(-(-len(ids) // STEP) * STEP, []).append(ids)
    batches = [
        _padded(same[start : start + BATCH], length)
        for length, same in sorted(by_length.items())
        for start in range(0, len(same), BATCH)
    ]
    order = torch.randperm(len(batches), generator=torch.Generator().manual_seed(seed))
    return [batches[number] for number in order.tolist()]


def _padded(rows: Sequence[Sequence[int]], length: int) -> Sentences:
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
    ends = torch.tensor([len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": (torch.arange(length) < ends[:, None]).long()}


@torch.no_grad()
def embeddings(model: nn.Module, batches: Sequence[Sentences], place: torch.device) -> Tensor:
    """Return the embeddings of all sentences in float64 on the CPU, (sentences, d)."""
    with evaluating(model):
        found = [
            model(**{name: tensor.to(place) for name, tensor in batch.items()}).cpu()
            for batch in batches
        ]
    return torch.cat(found).double()


def similarities(vectors: Tensor) -> Tensor:
    """Return the products of all pairs of different rows of (s, d), (s (s - 1) / 2,)."""
    first, second = torch.triu_indices(len(vectors), len(vectors), offset=1)
    return (vectors @ vectors.t())[first, second]
