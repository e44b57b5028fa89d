"""Numbers for JSON, which has no infinities and no NaN."""

from __future__ import annotations

import math


def finite_or_none(value: float) -> float | None:
    """Return the value, or None if it is infinite or NaN."""
    return value if math.isfinite(value) else None
