"""Read the values of options from the text of a command line.

Every function takes the flag, for messages, and the text (a list of texts for an option that may be
repeated), and returns the value that `chita.prune` expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from chita.errors import ChitaError
from chita.solver.constraints.pattern import LARGEST_M, parse_pattern

Ridge = float | Literal["auto"]

AUTO = "auto"


def read_sparsity_text(flag: str, text: str) -> float | str:
    """Read a number, or a pattern such as "2:4"."""
    try:
        if ":" not in text:
            return float(text)
        parse_pattern(text)
    except ValueError:  # also that of parse_pattern, which does not name the flag
        raise ChitaError(
            f"{flag} must be a number in [0, 1), or N:M with N < M <= {LARGEST_M}, such as 2:4, "
            f"got {text!r}"
        ) from None
    return text


def read_ridge(flag: str, text: str) -> Ridge:
    """Read a number, or "auto"."""
    try:
        return "auto" if text == AUTO else float(text)
    except ValueError:
        raise ChitaError(f"{flag} must be 'auto' or a number, got {text!r}") from None


def read_budget(flag: str, text: str) -> float | str:
    """Read a number of seconds, or return the text."""
    try:
        return float(text)
    except ValueError:
        return text


def read_text(flag: str, text: Any) -> Any:
    """Return a text, or a list of texts, as it is."""
    return text


def read_shares(flag: str, texts: Sequence[str]) -> dict[str, float]:
    """Read a list of GLOB=SPARSITY."""
    shares: dict[str, float] = {}
    for text in texts:
        pattern, _, sparsity = text.rpartition("=")
        try:
            shares[pattern] = float(sparsity)
        except ValueError:
            pattern = ""
        if not pattern:
            raise ChitaError(f"{flag} must be GLOB=SPARSITY, such as 'fc*=0.8', got {text!r}")
    return shares
