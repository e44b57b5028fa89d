"""The choice of a stage: the interface of the searches that make it, and what they return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from chita.errors import ChitaError
from chita.pruning.auto.candidates import Candidate, Trial
from chita.pruning.auto.ridge import Choice
from chita.pruning.held_out import LossesOf
from chita.pruning.stage_problem import Formulation
from chita.solver.solve import Solution

MASK = 0.0  # the fraction of the displacement at which nothing moves: the mask alone


class Solvable(Protocol):
    """A stage problem, as a search uses it."""

    def solve(self, formulation: Formulation, ridge: float) -> Solution:
        """Return the solution for this formulation and lambda."""

    def update(self, formulation: Formulation, ridge: float, solution: Solution) -> Solution:
        """Return the solution for another lambda, given one that may share its support."""

    def still(self, solution: Solution) -> Tensor:
        """Return w0 on the support of a solution, zero elsewhere, (p,)."""

    def mask(self, formulation: Formulation) -> tuple[Tensor, Tensor]:
        """Return P_k(w0) in the metric of a formulation, (p,), and its support, (k,)."""

    def empties_layer(self, support: Tensor) -> bool:
        """Return whether a support keeps far less of some layer than of the whole network."""


@dataclass(frozen=True)
class StageChoice:
    """The choice of a stage.

    Attributes:
        choice: the solution, its lambda and its held-out losses.
        candidate: the candidate that was solved.
        step: the fraction of the displacement.
        trials: everything that was tried; empty without held-out samples.
    """

    choice: Choice
    candidate: Candidate
    step: float
    trials: list[Trial]

    @property
    def why(self) -> str:
        """The choice in words; empty if there was no choice."""
        if not self.trials:
            return ""
        what = str(self.candidate)
        if self.choice.ridge:
            what += f", lambda = {self.choice.ridge:.2g}"
        if self.step < 1:
            moved = f"{self.step:.0%} of the displacement"
            what += ", mask alone" if self.step == MASK else f", {moved}"
        masks = [trial.loss for trial in self.trials if trial.step == MASK]
        alone = f"; the mask alone has {min(masks):.4g}" if masks else ""
        loss = self.choice.held_out_loss
        return f"{what}: held-out loss {loss:.4g}, chosen among {len(self.trials)}{alone}"


def check_finite(best: Choice) -> None:
    """Raise a ChitaError if the held-out loss of the best candidate of a stage is not finite."""
    if math.isinf(best.rank):
        raise ChitaError(
            f"the held-out loss is {best.held_out_loss} for every candidate that was tried; the "
            "data must be finite, or the ridge larger"
        )


@dataclass(frozen=True)
class ContestLosses:
    """The losses by which candidates are compared before the first stage.

    Attributes:
        right_after: computes the losses on held-out samples, which choose lambda.
        after_few: computes the losses after a few steps of training.
        after_stage: computes the losses after as many steps as a stage has.
    """

    right_after: LossesOf
    after_few: LossesOf
    after_stage: LossesOf


class StageSearch(Protocol):
    """Chooses the solution of each stage of a run."""

    def choose(self, problem: Solvable, losses_of: LossesOf, other_losses: LossesOf) -> StageChoice:
        """Choose by held-out losses, of which there are two kinds."""

    def compare_all(self, problems: Sequence[Solvable], losses: ContestLosses) -> list[Trial]:
        """Compare candidates after some training, before the first stage; may compare none."""

    def only(self, problem: Solvable) -> StageChoice:
        """Choose without held-out samples."""

    @property
    def needs_gradients(self) -> bool:
        """Whether the next choice depends on A."""

    @property
    def entrants(self) -> int:
        """The candidates that are compared after some training; 0 if none is."""

    def state(self) -> dict[str, Any]:
        """Return the state that the next stage depends on, ready for JSON."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a result of `state`."""
