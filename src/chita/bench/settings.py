"""Settings: the arguments of chita.prune that a benchmark varies, and the grid of each method."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from itertools import product
from typing import Any

from chita.methods import METHODS

RIDGES = (1e-5, 1e-4, 1e-3, 1e-2)  # lambda, of every method but CHITA and CHITA++
TAYLOR = "woodtaylor"  # the one rival whose model of the loss has a first-order term
EXPLICIT = ("woodfisher", TAYLOR)  # they form the inverse, which is too large for ResNet20


@dataclass(frozen=True)
class Setting:
    """One point of a grid: arguments of chita.prune. It is part of the keys of cells."""

    method: str
    ridge: float | str
    batch: int
    samples: int
    first_order: bool = True
    stages: int | None = None
    iterations: int | None = None
    continuation: int = 0
    hold: float = 0.0
    schedule: str = "polynomial"
    block_size: int | None = None


DEFAULTS: dict[str, Any] = {
    field.name: field.default for field in fields(Setting) if field.default is not MISSING
}


def paper_grid(network: str, method: str) -> list[Setting]:
    """The automatic setting, and the part of the paper's grid that is worth the time.

    The paper also varies the IHT iterations; before a backsolve they change next to nothing.
    """
    if network in ("mobilenetv1", "resnet50"):
        return _imagenet(network, method)
    if method == "chita++":
        return _chita_plus_plus(network)
    if method == "chita-bso":
        return _chita(network)
    return _rival(network, method)


def quick_grid(network: str, method: str) -> list[Setting]:
    """One lambda and the automatic one, on fewer samples."""
    if takes_too_long(network, method, quick=True):
        return []
    auto = Setting(method, "auto", batch=1, samples=100, first_order=method == TAYLOR)
    if method == "chita++":
        auto = Setting(method, "auto", batch=16, samples=200, stages=6)
    if method in EXPLICIT:
        auto = replace(auto, block_size=500)
    return [auto] if has_no_ridge(method) else [auto, replace(auto, ridge=1e-3)]


def takes_too_long(network: str, method: str, quick: bool) -> bool:
    """OBS removes one weight after the other: minutes on MLPNet, days on the others."""
    return method == "obs" and (quick or network != "mlpnet")


def _chita_plus_plus(network: str) -> list[Setting]:
    auto = Setting("chita++", "auto", batch=16, samples=1000)
    if network == "mlpnet":
        paper = replace(auto, ridge=1e-3, stages=15)  # the paper's number of stages
        return [auto, paper, replace(auto, ridge=3e-4)]
    # The last third of the stages at the target; high sparsity needs many, low sparsity does not.
    return [auto, *(replace(auto, ridge=1e-2, hold=0.33, stages=stages) for stages in (15, 30, 60))]


def _chita(network: str) -> list[Setting]:
    auto = Setting("chita-bso", "auto", batch=1, samples=1000, first_order=False)
    whole = [
        replace(auto, ridge=ridge, first_order=first_order)
        for ridge, first_order in product((1e-4, 1e-3, 1e-2, 1e-1), (False, True))
    ]
    if network == "mlpnet":
        return [auto, *whole, *(replace(setting, continuation=15) for setting in whole)]
    # With blocks, a thousand samples say more about each weight.
    return [auto, *(replace(auto, ridge=r, block_size=2000) for r in (1e-5, 1e-4)), *whole]


def _rival(network: str, method: str) -> list[Setting]:
    if takes_too_long(network, method, quick=False):
        return []
    large = network == "resnet20" and method in (*EXPLICIT, "cbs")  # cbs is better so
    auto = Setting(
        method,
        "auto",
        batch=1,
        samples=1000,
        first_order=method == TAYLOR,
        block_size=2000 if large else None,
    )
    if has_no_ridge(method):
        return [auto]
    return [auto, *(replace(auto, ridge=ridge) for ridge in RIDGES)]


def _imagenet(network: str, method: str) -> list[Setting]:
    """CHITA's n and m of tab:setting, for all methods; ResNet50 with three block sizes."""
    if network == "resnet50":
        base = Setting(method, 1e-5, batch=16, samples=500, first_order=False)
        sizes = (None,) if has_no_ridge(method) else (2000, 5000, 10_000)
        return [replace(base, block_size=size) for size in sizes]
    auto = Setting(method, "auto", batch=16, samples=1000, first_order=False, block_size=2000)
    if method == "chita++":
        auto = replace(auto, stages=100, first_order=True)
    if has_no_ridge(method):
        return [replace(auto, block_size=None)]
    terms = (False, True) if method == "chita-bso" else (auto.first_order,)
    fixed = [replace(auto, ridge=ridge, first_order=term) for ridge in RIDGES for term in terms]
    return [auto, *fixed]


def has_no_ridge(method: str) -> bool:
    """Whether the method takes no lambda."""
    return METHODS[method].curvature == "none"
