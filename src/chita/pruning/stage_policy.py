"""Stage policies: how a run chooses the solution of each stage.

A `FixedPolicy` does what the paper does: the options determine the stages, and held-out samples
choose only what an option leaves open (lambda, the metric). A `SearchPolicy`, for method="auto",
searches among candidates at every stage and adapts the rest of the run to the model and the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from chita.pruning.auto.candidates import CandidateSpace
from chita.pruning.auto.ridge import Choice
from chita.pruning.auto.search import STEPS, CandidateSearch
from chita.pruning.auto.share_search import ShareSearch
from chita.pruning.auto.sparing import SparingSearch
from chita.pruning.auto.stage_choice import StageSearch
from chita.pruning.auto.tournament import Tournament
from chita.pruning.budget import parse_budget
from chita.pruning.config import PruneConfig
from chita.pruning.held_out import HeldOut, LossesOf
from chita.pruning.options.method import BATCH
from chita.pruning.options.text import AUTO
from chita.pruning.schedule import StagePath
from chita.pruning.stage_problem import Formulation
from chita.solver.matrix.memory import ENTRY

ROWS = 1000  # of A by default: the paper's n
# With few samples, all of them are in every stage. Half the rows then take half the time, and the
# accuracy is the same.
FEW_ROWS = 500
RECOVERY_BATCH = 2  # m with recovery, which needs few gradients
LEAST_ROWS = 16  # of a large network, whose rows are limited by their memory
HELD_OUT = 1000  # the least samples to choose by, if the data have as many
HELD_OUT_PART = 4  # samples in A for each one: with fewer to choose by, lambdas look alike
# A search tries about eight candidates. The fraction keeps their time below that of the gradients,
# which take a forward pass and a backward pass of twice that time for each sample.
SEARCH_PART = 3 / 8


@dataclass(frozen=True)
class StagePolicy(ABC):
    """The rule by which a run chooses the solution of each stage.

    Attributes:
        config: the options of the run.
        p: the prunable weights; 0 if their number does not matter.
        adapts_batch: whether m is reduced if there are few samples.
        adapts_memory: whether a budget is set if A does not fit into the free memory.
        repairs: whether batch norm and biases are repaired at the end.
        compares_masks: whether the rows of the stages have the loss of the mask alone.
    """

    config: PruneConfig
    p: int = field(default=0, kw_only=True)
    compares_masks: ClassVar[bool] = False
    adapts_batch: ClassVar[bool]
    adapts_memory: ClassVar[bool]
    repairs: ClassVar[bool]

    @property
    @abstractmethod
    def held_out_for(self) -> str | None:
        """The option that needs held-out samples; None if none does."""

    @abstractmethod
    def samples_to_choose_by(self, samples: int) -> int:
        """Return how many samples to hold out at most, given the samples in A."""

    @property
    def rows(self) -> int:
        """n, the rows of A by default."""
        return ROWS

    def rows_for(self, samples: int) -> int:
        """Return n, given the number of samples, or `rows * batch` if there are more."""
        return self.rows

    @property
    def batch(self) -> int:
        """m, the samples in a row by default."""
        return BATCH

    @property
    @abstractmethod
    def path(self) -> StagePath:
        """The sparsities of the stages."""

    def candidates(self, n: int, p: int) -> CandidateSpace:
        """Return the candidates of the run.

        Args:
            n: the rows of A.
            p: the prunable weights.
        """
        return CandidateSpace.of(self.config, n, p)

    @abstractmethod
    def search(self, space: CandidateSpace) -> StageSearch:
        """Return the search that chooses among the candidates of each stage."""

    @property
    @abstractmethod
    def compares_solutions(self) -> bool:
        """Whether a stage chooses among solutions by held-out losses."""

    @abstractmethod
    def choosing_losses(self, held_out: HeldOut, stage: int) -> LossesOf:
        """Return the losses by which a stage is chosen."""

    def other_losses(self, held_out: HeldOut, worth: Callable[[], LossesOf] | None) -> LossesOf:
        """Return the other losses that the search takes.

        Args:
            held_out: the held-out samples.
            worth: returns the losses after a few training steps; None without recovery.
        """
        return held_out.screening_losses

    @abstractmethod
    def choice_loss(self, held_out: HeldOut, choice: Choice) -> float | None:
        """Return the loss of a choice, whose weights the model has, on all held-out samples."""

    @property
    def formulation(self) -> Formulation:
        """The formulation of the stage problems that candidates change."""
        return Formulation(self.config.resolve_options())

    @property
    def _given_ridge(self) -> float | None:
        return self.config.given_ridge

    def _path(self, plan: list[float] | None) -> StagePath:
        config = self.config
        return StagePath(config.start, config.sparsity, len(config.plan()), config.hold, plan)


class FixedPolicy(StagePolicy):
    """Follow the options, as the paper does."""

    adapts_batch = adapts_memory = repairs = False

    @property
    def held_out_for(self) -> str | None:
        config = self.config
        if config.searches_share:
            return "layer_share='auto'"
        if config.metric == AUTO:
            return "metric='auto'"
        if config.recovers:
            return "recover=True"
        return "ridge='auto'" if config.given_ridge is None else None

    @property
    def batch(self) -> int:
        return BATCH if self.config.resolve_method().curvature.reads_samples else 1

    def samples_to_choose_by(self, samples: int) -> int:
        if self.held_out_for is None:
            return 0
        if not self.config.resolve_method().takes_ridge:
            return HELD_OUT
        return max(HELD_OUT, samples // HELD_OUT_PART)

    @property
    def path(self) -> StagePath:
        return self._path(self.config.plan())

    def search(self, space: CandidateSpace) -> CandidateSearch:
        by_sweeps = self.config.resolve_method().adds_inputs
        search = ShareSearch if by_sweeps else CandidateSearch
        return search(space, self.formulation, ridge=self._given_ridge, steps=())

    @property
    def compares_solutions(self) -> bool:
        return self.config.resolve_method().takes_ridge

    def choosing_losses(self, held_out: HeldOut, stage: int) -> LossesOf:
        return held_out.losses

    def choice_loss(self, held_out: HeldOut, choice: Choice) -> float | None:
        return choice.held_out_loss


class SearchPolicy(StagePolicy):
    """Search among candidates at every stage, by the held-out loss (method="auto")."""

    adapts_batch = adapts_memory = repairs = True

    def rows_for(self, samples: int) -> int:
        return self.rows if samples >= self.rows * self.batch else FEW_ROWS

    @property
    def held_out_for(self) -> str:
        return "method='auto'"

    def samples_to_choose_by(self, samples: int) -> int:
        return max(samples // HELD_OUT_PART, min(HELD_OUT, int(samples * SEARCH_PART)), 1)

    @property
    def path(self) -> StagePath:
        return self._path(None if self.config.schedule is None else self.config.plan())

    def search(self, space: CandidateSpace) -> StageSearch:
        return SparingSearch(space, self.formulation, ridge=self._given_ridge, steps=STEPS)

    @property
    def compares_solutions(self) -> bool:
        return True

    def choosing_losses(self, held_out: HeldOut, stage: int) -> LossesOf:
        return held_out.half(stage)

    def choice_loss(self, held_out: HeldOut, choice: Choice) -> float | None:
        return held_out.losses_now().mean if held_out.halved else choice.held_out_loss


class TournamentPolicy(SearchPolicy):
    """Choose among masks and solves by their losses after some training (auto with recovery)."""

    compares_masks = True

    @property
    def rows(self) -> int:
        budget = parse_budget("budget", self.config.budget)
        fitting = budget.matrix_bytes // (ENTRY * max(self.p, 1))
        return min(budget.rows, max(fitting, LEAST_ROWS))

    def rows_for(self, samples: int) -> int:
        return self.rows

    @property
    def batch(self) -> int:
        """m; with fewer rows, each row is the mean over more samples."""
        return RECOVERY_BATCH * parse_budget("budget", self.config.budget).rows // self.rows

    def samples_to_choose_by(self, samples: int) -> int:
        return HELD_OUT

    def search(self, space: CandidateSpace) -> Tournament:
        return Tournament(space, self.formulation, ridge=self._given_ridge)

    def choosing_losses(self, held_out: HeldOut, stage: int) -> LossesOf:
        return held_out.losses

    def other_losses(self, held_out: HeldOut, worth: Callable[[], LossesOf] | None) -> LossesOf:
        assert worth is not None  # the policy of runs with recovery
        return worth()


def policy_for(config: PruneConfig, p: int = 0) -> StagePolicy:
    """Return the policy of the method, for p prunable weights."""
    if config.method != AUTO:
        return FixedPolicy(config, p=p)
    return (TournamentPolicy if config.recovers else SearchPolicy)(config, p=p)
