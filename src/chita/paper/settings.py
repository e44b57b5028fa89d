"""The arguments of chita.prune that a benchmark varies, and the grid of each method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from itertools import product
from typing import Any

from chita.methods import METHODS, get_method
from chita.paper.added_methods import source_key

RIDGES = (1e-5, 1e-4, 1e-3, 1e-2)  # lambda of all methods except CHITA and CHITA++
TAYLOR = "woodtaylor"  # the only other method with a first-order term
EXPLICIT = ("woodfisher", TAYLOR)  # these form the inverse, which is too large for ResNet20
CHITA_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
PAPER_STAGES, PAPER_SCHEDULE = 15, "exponential"  # CHITA++ on MLPNet and ResNet20
CONTINUATION = 15  # number of intermediate supports; the paper has none
# Cells are identified by their keys, which do not depend on the implementation of a method.
# Increase this number when the results of CHITA or CHITA++ change for the same setting.
# 2: zero columns of A are dropped, and their weights are pruned.
VERSION = 2
AUTO_VERSION = 3  # of auto: it recovers by default
RECOVERY_VERSION = 4  # of all methods with recovery: 40 passes over the samples


@dataclass(frozen=True)
class Setting:
    """One point of a grid: arguments of chita.prune. It is part of the keys of cells.

    All fields except `augment`, which applies to the calibration images, are passed to chita.prune.
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
        """Return the setting as a short text without the options that are off or do not apply."""
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
    """Return the automatic setting and the relevant part of the paper's grid.

    The paper also varies the number of IHT iterations. It has almost no effect before a backsolve.
    """
    if network in ("mobilenetv1", "resnet50"):
        return _imagenet(network, method)
    if method == "chita++":
        return _chita_plus_plus(network)
    if method == "chita-bso":
        return _chita(network)
    return _rival(network, method)


def quick_grid(network: str, method: str) -> list[Setting]:
    """Return a setting with fixed lambda and the automatic one, both with few samples."""
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
    """Return whether a method is too slow for a network.

    OBS removes one weight at a time: this takes minutes on MLPNet and days on the others.
    """
    return method == "obs" and (quick or network != "mlpnet")


def _chita_plus_plus(network: str) -> list[Setting]:
    """Return settings with our own stages, schedule and hold, then those of the paper."""
    default = METHODS["chita++"].stages  # explicit, so that the key changes with it
    auto = Setting("chita++", "auto", batch=16, samples=1000, stages=default)
    if network == "mlpnet":
        ours = [auto, replace(auto, ridge=1e-3, stages=15), replace(auto, ridge=3e-4)]
    else:
        # A third of the stages is at the target; only high sparsities need many stages.
        held = replace(auto, ridge=1e-2, hold=0.33)
        ours = [auto, *(replace(held, stages=stages) for stages in (15, 30, 60))]
    return [*ours, *_paper_chita_plus_plus(network)]


def _paper_chita_plus_plus(network: str) -> list[Setting]:
    """Return the settings of CHITA++ in the paper's 15 stages.

    As in the paper, the mesh is exponential and the solver is the active set with coordinate
    descent (algorithm 4); as in the authors' code, ResNet20's images are augmented. The paper does
    not state tau_1 for its table: MLPNet uses 0.2, as in fig:training_loss, and 0.7, the best of
    three values on the test set at 0.98. ResNet20 uses m = 16, and m = 1 as in tab:setting without
    the first-order term, whose step is too long for m = 1.
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
    """Return the paper's algorithm for several lambda, with and without the first-order term.

    All of these settings are repeated with continuation.
    """
    auto = Setting("chita-bso", "auto", batch=1, samples=1000, first_order=False)
    fixed = [
        replace(auto, ridge=ridge, first_order=first_order)
        for ridge, first_order in product(CHITA_RIDGES, (False, True))
    ]
    continued = [replace(setting, continuation=CONTINUATION) for setting in (auto, *fixed)]
    if network == "resnet20":
        # With blocks, a thousand samples estimate the curvature of each block better.
        fixed += [replace(auto, ridge=ridge, block_size=2000) for ridge in (1e-5, 1e-4)]
    return [auto, *fixed, *continued]


def _rival(network: str, method: str) -> list[Setting]:
    if takes_too_long(network, method, quick=False):
        return []
    large = network == "resnet20" and method in (*EXPLICIT, "cbs")  # cbs is better in blocks
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
    """Return settings with CHITA's n and m of tab:setting; ResNet50 has three block sizes."""
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
    """Return whether the method has no ridge lambda."""
    return not get_method(method).takes_ridge


def version_key(method: str) -> dict[str, Any]:
    """Return the part of a cell's key that depends on the version or the source of a method."""
    if method == "auto":
        return {"version": AUTO_VERSION}
    version = {"version": VERSION} if method.startswith("chita") else {}
    return {**version, **source_key(METHODS[method])} if method in METHODS else version


def recovery_key(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a cell's key that depends on recovery, given arguments of chita.prune."""
    recovers = arguments.get("recover", arguments.get("method") == "auto")
    return {"recovery_version": RECOVERY_VERSION} if recovers else {}


def _number(ridge: float | str) -> str:
    return ridge if isinstance(ridge, str) else f"{ridge:g}"
