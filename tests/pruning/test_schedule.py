from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chita.errors import ChitaError
from chita.pruning.schedule import BISECTIONS, MESHES, highest_sparsity, sparsities
from tests.support.messages import naming


def stages(schedule: str, *, target: float = 0.9, f: int = 15, start: float = 0.2, hold: float = 0):
    return sparsities(schedule, target, stages=f, start=start, hold=hold)


@pytest.mark.parametrize("schedule", ["exponential", "geometric", "linear", "polynomial"])
def test_goes_from_the_first_sparsity_to_the_target(schedule: str) -> None:
    taus = stages(schedule)
    assert len(taus) == 15
    assert taus[0] == pytest.approx(0.2)
    assert taus[-1] == 0.9
    assert all(a < b for a, b in pairwise(taus))


def test_exponential_is_the_mesh_of_the_paper() -> None:
    """tau_i = tau_1 + (tau - tau_1) (1 - 2^-i) 2^(f-1) / (2^(f-1) - 1), i = 0, ..., f - 1."""
    assert stages("exponential", f=4) == pytest.approx([0.2, 0.6, 0.8, 0.9])
    expected = [0.2 + 0.7 * (1 - 2**-i) * 2**14 / (2**14 - 1) for i in range(15)]
    assert stages("exponential") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("target", "start"), [(0.9, 0.2), (0.98, 0.0), (0.95, 0.5)])
def test_exponential_steps_halve(target: float, start: float) -> None:
    """A geometric mesh under this name fails here: its steps shrink by another factor."""
    taus = stages("exponential", target=target, start=start)
    steps = [b - a for a, b in pairwise(taus)]
    assert [b / a for a, b in pairwise(steps)] == pytest.approx([0.5] * 13)


def test_exponential_spreads_over_the_rising_stages_alone() -> None:
    assert stages("exponential", f=15, hold=0.33) == stages("exponential", f=11) + [0.9] * 4


def test_geometric_divides_the_density_by_a_constant() -> None:
    densities = [1 - tau for tau in stages("geometric")]
    ratios = [b / a for a, b in pairwise(densities)]
    assert ratios == pytest.approx([(0.1 / 0.8) ** (1 / 14)] * 14)


def test_exponential_is_ahead_of_geometric_on_the_way() -> None:
    pairs = zip(stages("exponential"), stages("geometric"), strict=True)
    assert all(exponential > geometric + 0.01 for exponential, geometric in list(pairs)[1:-1])


@given(
    schedule=st.sampled_from(sorted(MESHES)),
    target=st.floats(0, 1, exclude_max=True),
    start=st.floats(0, 1, exclude_max=True),
    hold=st.floats(0, 1, exclude_max=True),
    f=st.one_of(st.integers(1, 100), st.integers(1100, 1200)),
)
def test_every_mesh_rises_to_the_target(
    schedule: str, target: float, start: float, hold: float, f: int
) -> None:
    taus = stages(schedule, target=target, f=f, start=start, hold=hold)
    assert len(taus) == f
    assert taus[-1] == target
    assert min(start, target) <= min(taus)
    assert all(a <= b for a, b in pairwise(taus))
    assert taus[f - 1 - min(int(hold * f), f - 1) :] == [target] * (min(int(hold * f), f - 1) + 1)


def test_linear_adds_a_constant() -> None:
    assert stages("linear") == pytest.approx([0.2 + 0.05 * t for t in range(15)])


def test_polynomial_is_the_cubic_of_zhu_and_gupta() -> None:
    expected = [0.9 - 0.7 * (1 - t / 14) ** 3 for t in range(15)]
    assert stages("polynomial") == pytest.approx(expected)


def test_constant_stays_at_the_target() -> None:
    assert stages("constant") == pytest.approx([0.9] * 15)


@pytest.mark.parametrize("schedule", sorted(MESHES))
def test_holds_the_target_at_the_end(schedule: str) -> None:
    taus = stages(schedule, f=10, hold=0.3)
    assert taus[6:] == [0.9] * 4
    if schedule != "constant":
        assert taus[5] < 0.9
        assert taus[0] == pytest.approx(0.2)


@pytest.mark.parametrize("schedule", sorted(MESHES))
@pytest.mark.parametrize("target", [0.0, 0.1, 0.2])
def test_a_target_below_the_start_is_there_from_the_first(schedule: str, target: float) -> None:
    assert stages(schedule, target=target, f=4) == pytest.approx([target] * 4)


@pytest.mark.parametrize("schedule", sorted(MESHES))
@pytest.mark.parametrize("hold", [0.0, 0.99])
def test_one_stage_is_the_target(schedule: str, hold: float) -> None:
    assert stages(schedule, f=1, hold=hold) == [0.9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"schedule": "cosine"}, naming("schedule", "linear", "cosine")),
        ({"f": 0}, naming("stages", 0)),
        ({"f": 2.5}, naming("stages", 2.5)),
        ({"start": 1.0}, naming("start", 1.0)),
        ({"start": -0.1}, naming("start", -0.1)),
        ({"hold": 1.0}, naming("hold", 1.0)),
    ],
)
def test_errors_name_the_argument(arguments: dict, message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        stages(**{"schedule": "linear", **arguments})


@given(bend=st.floats(0, 1), highest=st.floats(0.5, 1))
def test_the_highest_sparsity_within_a_limit_is_bracketed(bend: float, highest: float) -> None:
    lowest = 0.2
    found = highest_sparsity(lambda sparsity: float(sparsity > bend), 0.5, lowest, highest)
    if bend >= highest:
        assert found == highest
    else:
        width = (highest - lowest) / 2**BISECTIONS
        assert found == pytest.approx(max(bend, lowest), abs=1.01 * width)
        assert found <= max(bend, lowest)
