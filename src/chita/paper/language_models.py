"""The language models of the benchmark: their folders, and the sequences to prune and measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chita.data.text import CONTEXT, SEQUENCES, Tokens, choose_sequences, read_tokens
from chita.model.forward import device_of
from chita.model.language import Sequences, measure_perplexity, sequence_batches
from chita.paper.small_language import random_words, write_small_llama
from chita.paper.wikitext import wikitext_files
from chita.references.huggingface_files import load_tokenizer
from chita.references.huggingface_model import huggingface_network
from chita.zoo.weights import get_weights

WRITTEN = 64  # the test sequences of a model that is measured on text sampled from it
SMALL, SMALL_WORDS, SMALL_CONTEXT = "small-llama", 3000, 32


@dataclass(frozen=True)
class Corpus:
    """The sequences of a model, (S, context): those of calibration, before a choice, and of test.

    Attributes:
        calibration: sequences to calibrate on.
        test: sequences that the perplexity is measured on.
    """

    calibration: Tensor
    test: Tensor


class LanguageModel:
    """A language model in a folder, and its text.

    Args:
        name: the name in keys and tables.
        find: returns the folder of Hugging Face; called once, when the model is used.
        place: the device of the model.
        read: returns the text, given this object; called once.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[], Path],
        place: torch.device,
        read: Callable[[LanguageModel], Corpus],
    ) -> None:
        self.name, self.place, self._find, self._read = name, place, find, read

    @cached_property
    def folder(self) -> Path:
        """The folder of Hugging Face."""
        return self._find()

    def build(self) -> nn.Module:
        """Return a new model with the trained weights."""
        build = huggingface_network(f"hf:{self.folder}", {}).build_trained
        assert build is not None
        return build().to(self.place)

    @cached_property
    def corpus(self) -> Corpus:
        """The text."""
        return self._read(self)

    def calibration(self, model: nn.Module, seed: int) -> list[Sequences]:
        """Return batches of the sequences to calibrate on, in random order."""
        chosen = choose_sequences(self.corpus.calibration, SEQUENCES, seed)
        return sequence_batches(model, chosen, self.name)

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """Return the perplexity of the test sequences, and the number of their tokens."""
        test = sequence_batches(model, self.corpus.test, self.name)
        found = measure_perplexity(model, test)
        return {"perplexity": found.perplexity, "tokens": found.tokens}


def smollm(texts: Path | None, place: torch.device, out: Path) -> LanguageModel:
    """Return SmolLM2-135M, with WikiText-2.

    Args:
        texts: the folder with wiki.test.raw and valid.txt.
        place: the device of the model.
        out: the folder of the benchmark.

    Raises:
        ChitaError: the files are missing, or the weights cannot be fetched.
    """
    files, folder = wikitext_files(texts), get_weights("smollm2-135m")

    def read(model: LanguageModel) -> Corpus:
        encode = load_tokenizer(model.folder)
        found = (read_tokens(file, encode).sequences(CONTEXT) for file in files)
        return Corpus(*found)

    return LanguageModel("smollm2-135m", lambda: folder, place, read)


def stories(texts: Path | None, place: torch.device, out: Path) -> LanguageModel:
    """Return stories15M, which is calibrated and measured on text that is sampled from it."""
    folder = get_weights("stories15m")

    def read(model: LanguageModel) -> Corpus:
        return Corpus(
            *write_text(model.build(), (SEQUENCES, WRITTEN), torch.Generator().manual_seed(0))
        )

    return LanguageModel("stories15m", lambda: folder, place, read)


def small(texts: Path | None, place: torch.device, out: Path) -> LanguageModel:
    """Return a small random Llama, which is written on first use, with random words as its text."""

    def read(model: LanguageModel) -> Corpus:
        encode = load_tokenizer(model.folder)
        words = (random_words(SMALL_WORDS, seed) for seed in (0, 1))
        found = (Tokens(SMALL, torch.tensor(encode(text))) for text in words)
        return Corpus(*(tokens.sequences(SMALL_CONTEXT) for tokens in found))

    return LanguageModel(SMALL, lambda: write_small_llama(out / "networks" / SMALL), place, read)


@torch.no_grad()
def write_text(
    model: nn.Module, counts: tuple[int, ...], generator: torch.Generator
) -> list[Tensor]:
    """Sample sequences of full length from a language model, each from its first token on.

    Args:
        model: a causal language model with a token that begins a text.
        counts: how many sequences to write for each of the parts to return.
        generator: a generator of the CPU, which draws the tokens.

    Returns:
        Sequences of token ids, (count, context), for each part.
    """
    settings: Any = model.config
    place = device_of(model)
    begin = 1 if settings.bos_token_id is None else settings.bos_token_id
    written = torch.full((sum(counts), 1), begin)
    model.eval()
    cache = None
    while written.shape[1] < settings.max_position_embeddings:
        outputs = model(input_ids=written[:, -1:].to(place), past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        likely = outputs.logits[:, -1].float().softmax(-1).cpu()
        drawn = torch.multinomial(likely, 1, generator=generator)
        written = torch.cat([written, drawn], 1)
    return list(torch.split(written, list(counts)))
