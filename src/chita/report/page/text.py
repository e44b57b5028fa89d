"""Numbers and other values as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DIGITS = {
    "accuracy": ".2f",
    "dense_accuracy": ".2f",
    "accuracy_before": ".2f",
    "paper": ".2f",
    "objective": ".4g",
    "ridge": ".2g",
}


def format_value(name: str, value: Any) -> str:
    """Format a value as text according to the name of its column."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if name == "sparsity":
            return format_share(value) if value <= 1 else f"{value:.2f}"
        digits = ".2f" if name.endswith("seconds") else _DIGITS.get(name, ".5g")
        return f"{value:{digits}}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {format_value(str(key), item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        by = " x " if name == "shape" else "; " if any(map(_nested, value)) else ", "
        return by.join(format_value(name, item) for item in value)
    return str(value)


def format_share(value: float) -> str:
    """Format a share in percent: 0.95 is 95.00 %."""
    return f"{100 * value:.2f} %"


def format_duration(seconds: float, longest: float = 0.0) -> str:
    """Format a time in milliseconds, seconds, minutes or hours.

    Args:
        seconds: the time.
        longest: the longest time in the same chart. Up to ten minutes, all are in seconds.
    """
    if seconds < 0.1:
        return f"{1000 * seconds:.2g} ms"
    if seconds < (60 if longest >= 600 else 600):
        digits = 2 if seconds < 10 else 1 if seconds < 100 else 0
        return f"{seconds:.{digits}f} s"
    whole = round(seconds)
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_size(count: float) -> str:
    """Format a number of bytes in the largest decimal unit of which there is at least one."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(count) < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:,.0f} bytes" if unit == "bytes" else f"{count:,.1f} {unit}"


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)
