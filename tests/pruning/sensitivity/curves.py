"""Curves made up for the tests of what is made of them."""

from __future__ import annotations

from collections.abc import Sequence

from chita.pruning.sensitivity import LayerCurve, LayerScore, SensitivityResult

LADDER = (0.5, 0.8, 0.9, 0.98)


def curves(layers: Sequence[tuple[int, Sequence[float]]]) -> SensitivityResult:
    """Layers a, b, ... of so many weights with these losses on LADDER; the dense loss is 1."""
    found = (
        LayerCurve(name, (weights,), weights, tuple(LayerScore(loss, 50.0) for loss in losses))
        for name, (weights, losses) in zip("abcdef", layers, strict=False)
    )
    return SensitivityResult(LADDER, LayerScore(1.0, 75.0), tuple(found), samples=100, seconds=1.0)
