"""Sparsity schedules: the increasing sequence tau_1 <= ... <= tau_f of CHITA++ (algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral

from chita.errors import ChitaError

# Each mesh gives the share of the way from the first sparsity to the target at x in [0, 1], as a
# function of x and the ratio of the last density to the first.
MESHES: dict[str, Callable[[float, float], float]] = {
    # density falls by a constant factor: small steps of sparsity near the target
    "exponential": lambda x, ratio: (1 - ratio**x) / (1 - ratio) if ratio < 1 else x,
    "linear": lambda x, ratio: x,
    "constant": lambda x, ratio: 1.0,
    "polynomial": lambda x, ratio: 1 - (1 - x) ** 3,  # Zhu and Gupta's cubic
}


def sparsities(
    schedule: str, target: float, *, stages: int, start: float, hold: float
) -> list[float]:
    """The sparsity of each stage, the last exactly `target`.

    Args:
        schedule: a name in MESHES.
        target: the sparsity to end at, in [0, 1).
        stages: f, how many stages there are.
        start: tau_1, the sparsity of the first stage (the target, if that is lower).
        hold: the last share of the stages that stays at the target.
    """
    if schedule not in MESHES:
        raise ChitaError(f"schedule must be one of {sorted(MESHES)}, got {schedule!r}")
    if not (isinstance(stages, Integral) and stages >= 1):
        raise ChitaError(f"stages must be an integer of at least 1, got {stages!r}")
    for name, value in (("start", start), ("hold", hold)):
        if not 0 <= value < 1:
            raise ChitaError(f"{name} must be in [0, 1), got {value!r}")
    start = min(start, target)
    held = min(int(hold * stages), stages - 1)
    rising = stages - held
    mesh, ratio = MESHES[schedule], (1 - target) / (1 - start)
    ramp = [start + (target - start) * mesh(t / (rising - 1), ratio) for t in range(rising - 1)]
    return ramp + [target] * (held + 1)
