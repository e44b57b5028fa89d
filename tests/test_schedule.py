from itertools import pairwise

import pytest

from chita.errors import ChitaError
from chita.schedule import MESHES, sparsities


def stages(schedule: str, *, target: float = 0.9, f: int = 15, start: float = 0.2, hold: float = 0):
    return sparsities(schedule, target, stages=f, start=start, hold=hold)


@pytest.mark.parametrize("schedule", ["exponential", "linear", "polynomial"])
def test_goes_from_the_first_sparsity_to_the_target(schedule: str) -> None:
    taus = stages(schedule)
    assert len(taus) == 15
    assert taus[0] == pytest.approx(0.2)
    assert taus[-1] == 0.9
    assert all(a < b for a, b in pairwise(taus))


def test_exponential_divides_the_density_by_a_constant() -> None:
    densities = [1 - tau for tau in stages("exponential")]
    ratios = [b / a for a, b in pairwise(densities)]
    assert ratios == pytest.approx([(0.1 / 0.8) ** (1 / 14)] * 14)


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
        ({"schedule": "cosine"}, "schedule must be one of .*'linear'.* got 'cosine'"),
        ({"f": 0}, "stages must be an integer of at least 1, got 0"),
        ({"f": 2.5}, "stages must be an integer .* got 2.5"),
        ({"start": 1.0}, r"start must be in \[0, 1\), got 1.0"),
        ({"start": -0.1}, "start must be .* got -0.1"),
        ({"hold": 1.0}, r"hold must be in \[0, 1\), got 1.0"),
    ],
)
def test_errors_name_the_argument(arguments: dict, message: str) -> None:
    with pytest.raises(ChitaError, match=message):
        stages(**{"schedule": "linear", **arguments})
