"""Numbers for JSON, which knows none that are not finite."""

from __future__ import annotations

import math


def finite_or_none(value: float) -> float | None:
    """The value, or None if it is infinite or no number."""
    return value if math.isfinite(value) else None
