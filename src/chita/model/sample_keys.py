"""Keys that identify samples by their content, whatever order a loader gives them in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from chita.model.batch import Batch

KEYS = 2**62  # keys are uniform in [0, KEYS)
COLUMNS = 2**14  # words that are multiplied at a time: the products take eight bytes each
MASK, DECODER = "attention_mask", "decoder_"  # keywords of Hugging Face's models
LABELS = ("label", "labels", "label_ids")


class SampleKeys:
    """Compute a key for each sample from the bits of its inputs.

    Equal inputs have equal keys; targets do not count, and neither do the labels in a dict. Tokens
    that an attention mask leaves out do not count either, so that a text keeps its key however its
    batch is padded.

    Args:
        seed: of the random multipliers. Keys of different seeds are independent of each other.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._table = torch.empty(0, dtype=torch.int64)  # the multipliers drawn so far
        # Zeros and samples without values depend on the seed as others do.
        self._start = int(self._factors(1, torch.device("cpu")))

    def of(self, batch: Batch) -> Tensor:
        """Return the keys of a batch, (size,) int64 on the CPU."""
        key = torch.full((batch.size,), self._start)
        for words, places in _words_of(batch.inputs):
            key = _mixed(key + self._product(words, places).cpu())
        return key.bitwise_and_(KEYS - 1)

    def _product(self, words: Tensor, places: Tensor | None) -> Tensor:
        """Multiply (size, c) words with random numbers, sum each row modulo 2^64: (size,)."""
        total = torch.zeros(len(words), dtype=torch.int64, device=words.device)
        for start in range(0, words.shape[1], COLUMNS):
            part = words[:, start : start + COLUMNS].to(torch.int64)
            factors = self._factors(words.shape[1], words.device)
            if places is None:
                factors = factors[start : start + COLUMNS]
            else:
                factors = factors[places[:, start : start + COLUMNS]]
            total += (part * factors).sum(1)
        return total

    def _factors(self, count: int, device: torch.device) -> Tensor:
        """Return the first `count` multipliers; longer tables begin with the shorter ones."""
        if len(self._table) < count:
            size = 1 << max(count - 1, 1).bit_length()
            generator = torch.Generator().manual_seed(self._seed)
            self._table = torch.randint(-(2**63), 2**63 - 1, (size,), generator=generator)
        self._table = self._table.to(device)
        return self._table[:count]


def _words_of(nest: Any) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Give each tensor of a nest as (size, c) integers, and the places of its words if masked."""
    if isinstance(nest, Tensor):
        yield _as_words(nest), None
    elif isinstance(nest, Mapping):
        for name in sorted(nest.keys() - LABELS, key=str):
            value = nest[name]
            mask: Any = nest.get(f"{DECODER}{MASK}" if str(name).startswith(DECODER) else MASK)
            if _is_masked(value, mask):
                seen = mask.to(torch.int64).ne(0)
                # A token counts by its rank among those that are seen, wherever padding is.
                yield value.to(torch.int64) * seen, (seen.cumsum(1) - 1).clamp_min(0)
            else:
                yield from _words_of(value)
    elif isinstance(nest, (tuple, list)):
        for value in nest:
            yield from _words_of(value)


def _is_masked(value: Any, mask: Any) -> bool:
    if not (isinstance(value, Tensor) and isinstance(mask, Tensor)):
        return False
    counts = value is mask or not value.is_floating_point()
    return counts and mask.ndim == 2 and value.shape == mask.shape


def _as_words(tensor: Tensor) -> Tensor:
    """View the bits of (size, ...) as integers, (size, c)."""
    flat = tensor.detach().reshape(len(tensor), math.prod(tensor.shape[1:])).contiguous()
    if flat.is_complex():
        flat = torch.view_as_real(flat).flatten(1)
    if flat.element_size() >= 4:
        return flat.view(torch.int32) if flat.numel() else flat.to(torch.int32)
    return flat.view(torch.int16 if flat.element_size() == 2 else torch.uint8)


def _mixed(key: Tensor) -> Tensor:
    """Spread every bit of the keys over all others (two rounds of multiply and shift)."""
    for factor in (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15):
        key = (key ^ (key >> 30)) * factor
    return key ^ (key >> 31)
