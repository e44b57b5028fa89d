"""Sparsity schedules: the increasing sequence tau_1 <= ... <= tau_f of CHITA++ (algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral

from chita.errors import ChitaError

# A mesh maps (i, last, ratio) to the share of the way from the first sparsity to the target that
# step i of 0, ..., last has covered; `ratio` is the target density divided by the first density.
Mesh = Callable[[int, int, float], float]


def _exponential(i: int, last: int, ratio: float) -> float:
    """The mesh of the paper's experiments: each step covers half of what the last one left.

    The factor 1 / (1 - 2^-last) makes the last step reach the target. Negative powers underflow to
    zero, so `last` may be large.
    """
    return (1 - 2.0**-i) / (1 - 2.0**-last)


def _geometric(i: int, last: int, ratio: float) -> float:
    """Each step divides the density by the same number, so steps are small near the target."""
    return (1 - ratio ** (i / last)) / (1 - ratio) if ratio < 1 else i / last


def _linear(i: int, last: int, ratio: float) -> float:
    """Each step adds the same to the sparsity."""
    return i / last


def _constant(i: int, last: int, ratio: float) -> float:
    """All steps are at the target."""
    return 1.0


def _polynomial(i: int, last: int, ratio: float) -> float:
    """The cubic of Zhu and Gupta."""
    return 1 - (1 - i / last) ** 3


MESHES: dict[str, Mesh] = {
    "exponential": _exponential,
    "geometric": _geometric,
    "linear": _linear,
    "constant": _constant,
    "polynomial": _polynomial,
}


def sparsities(
    schedule: str, target: float, *, stages: int, start: float, hold: float
) -> list[float]:
    """Return the sparsity of each stage: non-decreasing, the last exactly `target`.

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
    mesh, last, ratio = MESHES[schedule], rising - 1, (1 - target) / (1 - start)
    shares = (mesh(i, last, ratio) for i in range(last))
    # Rounding may carry start + (target - start) past the target.
    ramp = [min(start + (target - start) * share, target) for share in shares]
    return ramp + [target] * (held + 1)
