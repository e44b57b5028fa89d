"""Random numbers that depend on a key alone, so that a resumed run draws what it drew before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seed_of(*key: int) -> int:
    """Return a seed that depends on all numbers of a key."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:7], "big")


def generator_of(*key: int) -> torch.Generator:
    """Return a generator with the seed of a key."""
    return torch.Generator().manual_seed(seed_of(*key))


@contextmanager
def drawing(seed: int, place: torch.device) -> Iterator[None]:
    """Seed the random numbers of layers such as dropout, and restore the generators afterwards."""
    gpus = [place] if place.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(seed)
        if gpus:
            with torch.cuda.device(place):
                torch.cuda.manual_seed(seed)
        yield
