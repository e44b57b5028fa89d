from dataclasses import replace

import pytest

from chita import PruneConfig
from chita.methods import METHODS
from chita.paper.settings import CHITA_RIDGES, Setting, paper_grid, version_key
from chita.pruning.options.declaration import options_of

CHITA = Setting("chita-bso", 1e-3, batch=1, samples=1000)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (CHITA, "lambda=0.001, first_order, n=1000, m=1"),
        (replace(CHITA, ridge="auto", first_order=False), "lambda=auto, n=1000, m=1"),
        (
            replace(CHITA, continuation=15, block_size=2000, solver="cd", iterations=8),
            "lambda=0.001, first_order, n=1000, m=1, solver=cd, iterations=8, continuation=15, "
            "block_size=2000",
        ),
        (
            Setting("chita++", 1e-2, batch=16, samples=500, start=0.5, hold=0.33, augment=True),
            f"lambda=0.01, first_order, n=500, m=16, stages={METHODS['chita++'].stages}, "
            "schedule=polynomial, start=0.5, hold=0.33, augmented",
        ),
        (Setting("magnitude", "auto", batch=1, samples=1000), "no parameters"),
    ],
)
def test_describe(setting: Setting, text: str) -> None:
    assert setting.describe() == text


def test_arguments_are_those_of_prune() -> None:
    assert set(CHITA.arguments()) <= set(options_of(PruneConfig))
    assert set(vars(CHITA)) - set(CHITA.arguments()) == {"augment"}


def test_different_settings_have_different_texts() -> None:
    for network in ("mlpnet", "resnet20"):
        for method in set(METHODS) - {"auto"}:
            settings = paper_grid(network, method)
            assert len({setting.describe() for setting in settings}) == len(settings)


def test_only_our_methods_have_a_version() -> None:
    versioned = {method for method in METHODS if version_key(method)}
    assert versioned == {"auto", "chita++", "chita-bso", "chita-cd", "chita-layer", "chita-both"}


@pytest.mark.parametrize("network", ["mlpnet", "resnet20"])
def test_the_grid_of_chita(network: str) -> None:
    """Ridges times first order for the paper's algorithm, and the same with continuation."""
    chita = [s for s in paper_grid(network, "chita-bso") if s.block_size is None]
    plain = [s for s in chita if not s.continuation]
    fixed = {(s.ridge, s.first_order) for s in plain if s.ridge != "auto"}
    assert fixed == {(ridge, term) for ridge in CHITA_RIDGES for term in (False, True)}
    assert len(chita) == 2 * len(plain) == 18


@pytest.mark.parametrize("network", ["mlpnet", "resnet20"])
def test_the_grid_of_the_paper_s_stages(network: str) -> None:
    settings = [s for s in paper_grid(network, "chita++") if s.schedule == "exponential"]
    assert len(settings) == 9  # as many with a fixed lambda as for CHITA, and the automatic one
    assert {(s.stages, s.hold, s.solver) for s in settings} == {(15, 0.0, "cd")}
    assert {s.augment for s in settings} == {network == "resnet20"}
