from typing import Any

import pytest

from chita.paper.scale.fit import BOUNDS, MEMORY, draw_fits, fit_axis
from chita.report.figures import new_figure


def row(axis: str, **figures: Any) -> dict[str, Any]:
    parts = {part: None for bounds in BOUNDS.values() for part in bounds}
    return {"axis": axis, **parts, **figures}


ROWS = [
    row("n", n=1000, gram=3e-6 * 1000**2, factorisation=1e-9 * 1000**3),
    row("n", n=100, gram=3e-6 * 100**2, factorisation=None),
    row("n", n=10, gram=3e-6 * 10**2, factorisation=None),
    row("p", p=10, n=10, gram=100.0),
    row("ranks", ranks=1, gradients=8.0, **{MEMORY: 1.0}),
    row("ranks", ranks=4, gradients=4.0, **{MEMORY: 0.25}),
]


def test_a_power_law_is_found_again() -> None:
    (gram,) = fit_axis("n", ROWS)  # the factorisation has one size alone
    assert (gram.part, gram.bound) == ("gram", 2)
    assert gram.sizes == [10, 100, 1000]
    assert gram.exponent == pytest.approx(2)
    gradients, memory = fit_axis("ranks", ROWS)
    assert gradients.exponent == pytest.approx(-0.5)
    assert memory.exponent == pytest.approx(-1)
    assert fit_axis("p", ROWS) == []


def test_the_fit_is_least_squares_in_the_logarithms() -> None:
    bent = [row("k", k=2**e, solve=2.0**cost) for e, cost in ((0, 0), (1, 0), (2, 3))]
    (fit,) = fit_axis("k", bent)
    assert fit.exponent == pytest.approx(1.5)


def test_every_fit_is_drawn_beside_its_bound() -> None:
    figure = new_figure()
    draw_fits(figure, [*fit_axis("n", ROWS), *fit_axis("ranks", ROWS)])
    panels = {(panel.get_xlabel(), panel.get_ylabel()): panel for panel in figure.axes}
    assert set(panels) == {("n", "seconds"), ("ranks", "seconds"), ("ranks", MEMORY)}
    seconds = panels["ranks", "seconds"]
    (label,) = (text.get_text() for text in seconds.get_legend().get_texts())
    assert label == "gradients: -0.50 (bound -1)"
    points, _, bound = seconds.get_lines()
    assert points.get_ydata().tolist() == [8, 4]
    assert bound.get_ydata().tolist() == [16, 4]  # meets the largest size
    ticks = [tick.get_text() for tick in panels["n", "seconds"].get_xticklabels()]
    assert ticks == ["10", "100", "1k"]
    draw_fits(new_figure(), [])  # nothing was measured twice
