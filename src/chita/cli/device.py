"""The device that a command runs on."""

from __future__ import annotations

import torch

from chita.errors import ChitaError


def pick_device(name: str | None) -> torch.device:
    """The device called `name`, tried out; a GPU if there is one by default."""
    try:
        place = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=place).item()
    except (RuntimeError, AssertionError) as error:
        raise ChitaError(f"device {name!r} cannot be used: {error}") from error
    return place
