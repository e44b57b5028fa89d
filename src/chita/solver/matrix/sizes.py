"""Numbers of bytes: those of an entry, and how people write them."""

from __future__ import annotations

import re
from numbers import Integral
from typing import Any

from chita.errors import ChitaError

ENTRY = 4  # of a float32, in which A is stored unless its model is in float64
FACTOR_ENTRY = 8  # of a float64, in which systems are factorised

UNITS = {
    "": 1,
    **{name: 1000**power for power, name in enumerate(("B", "KB", "MB", "GB", "TB"))},
    **{name: 1000**power for power, name in enumerate("KMGT", start=1)},
    **{name: 1024**power for power, name in enumerate(("B", "KIB", "MIB", "GIB", "TIB"))},
}


def parse_bytes(name: str, given: Any) -> int:
    """The number of bytes that `given` stands for: "8GB", "1.5 GiB", or an integer.

    Args:
        name: of the argument, for the message.
        given: what the user gave for it.
    """
    if isinstance(given, Integral) and not isinstance(given, bool) and int(given) > 0:
        return int(given)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Z]*)", str(given).strip().upper())
    if isinstance(given, str) and match and match[2] in UNITS and float(match[1]) > 0:
        return int(float(match[1]) * UNITS[match[2]])
    raise ChitaError(f"{name} must be a size such as '8GB', '1.5GiB' or 2000000000, got {given!r}")


def format_bytes(count: float) -> str:
    """In the largest unit that leaves a number of at least 1, with three digits."""
    for unit in ("TB", "GB", "MB", "KB"):
        if count >= UNITS[unit]:
            return f"{count / UNITS[unit]:.3g} {unit}"
    return f"{count:.0f} B"
