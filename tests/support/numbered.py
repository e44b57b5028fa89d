"""Batches of samples that are numbered through."""

from __future__ import annotations

import torch


def numbered(sizes: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of those sizes whose samples are numbered through."""
    numbers = torch.arange(sum(sizes))
    return [(part.float().unsqueeze(1), part) for part in numbers.split(sizes)]
