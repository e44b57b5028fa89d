"""Stage policies: how a run chooses the solution of each stage.

A `FixedPolicy` does what the paper does: the options determine the stages, and held-out samples
choose only what an option leaves open (lambda, the metric). A `SearchPolicy`, for method="auto",
searches among candidates at every stage and adapts the rest of the run to the model and the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from chita.pruning.auto.candidates import CandidateSpace
from chita.pruning.auto.ridge import Choice
from chita.pruning.auto.search import STEPS, CandidateSearch, StageSearch
from chita.pruning.auto.tournament import Tournament
from chita.pruning.budget import parse_budget
from chita.pruning.config import PruneConfig
from chita.pruning.held_out import HeldOut, LossesOf
from chita.pruning.option_text import AUTO
from chita.pruning.options import BATCH
from chita.pruning.schedule import StagePath
from chita.pruning.stage_problem import Formulation

ROWS = 1000  # of A by default: the paper's n
RECOVERY_BATCH = 2  # m with recovery, which needs few gradients
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
        adapts_batch: whether m is reduced if there are few samples.
        adapts_memory: whether a budget is set if A does not fit into the free memory.
        repairs: whether batch norm and biases are repaired at the end.
    """

    config: PruneConfig
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

    @abstractmethod
    def choosing_losses(self, held_out: HeldOut, stage: int) -> LossesOf:
        """Return the losses by which a stage is chosen."""

    @abstractmethod
    def choice_loss(self, held_out: HeldOut, choice: Choice) -> float | None:
        """Return the loss of a choice, whose weights the model has, on all held-out samples."""

    @property
    def formulation(self) -> Formulation:
        """The formulation of the stage problems that candidates change."""
        return Formulation(self.config.resolve_options())

    @property
    def _given_ridge(self) -> float | None:
        return None if self.config.ridge == "auto" else self.config.ridge

    def _path(self, plan: list[float] | None) -> StagePath:
        config = self.config
        return StagePath(config.start, config.sparsity, len(config.plan()), config.hold, plan)


class FixedPolicy(StagePolicy):
    """Follow the options, as the paper does."""

    adapts_batch = adapts_memory = repairs = False

    @property
    def held_out_for(self) -> str | None:
        config = self.config
        if config.metric == AUTO:
            return "metric='auto'"
        if config.recovers:
            return "recover=True"
        return "ridge='auto'" if config.ridge == AUTO else None

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
        return CandidateSearch(space, self.formulation, ridge=self._given_ridge, steps=())

    def choosing_losses(self, held_out: HeldOut, stage: int) -> LossesOf:
        return held_out.losses

    def choice_loss(self, held_out: HeldOut, choice: Choice) -> float | None:
        return choice.held_out_loss


class SearchPolicy(StagePolicy):
    """Search among candidates at every stage, by the held-out loss (method="auto")."""

    adapts_batch = adapts_memory = repairs = True

    @property
    def held_out_for(self) -> str:
        return "method='auto'"

    def samples_to_choose_by(self, samples: int) -> int:
        return max(samples // HELD_OUT_PART, min(HELD_OUT, int(samples * SEARCH_PART)), 1)

    @property
    def path(self) -> StagePath:
        return self._path(None if self.config.schedule is None else self.config.plan())

    def search(self, space: CandidateSpace) -> StageSearch:
        return CandidateSearch(space, self.formulation, ridge=self._given_ridge, steps=STEPS)

    def choosing_losses(self, held_out: HeldOut, stage: int) -> LossesOf:
        return held_out.half(stage)

    def choice_loss(self, held_out: HeldOut, choice: Choice) -> float | None:
        return held_out.losses_now().mean if held_out.halved else choice.held_out_loss


class TournamentPolicy(SearchPolicy):
    """Choose among masks and solves by what they are worth after training (auto with recovery)."""

    @property
    def rows(self) -> int:
        return parse_budget("budget", self.config.budget).rows

    @property
    def batch(self) -> int:
        return RECOVERY_BATCH

    def samples_to_choose_by(self, samples: int) -> int:
        return HELD_OUT

    def search(self, space: CandidateSpace) -> Tournament:
        return Tournament(space, self.formulation, ridge=self._given_ridge)

    def choosing_losses(self, held_out: HeldOut, stage: int) -> LossesOf:
        return held_out.losses


def policy_for(config: PruneConfig) -> StagePolicy:
    """Return the policy of the method."""
    if config.method != AUTO:
        return FixedPolicy(config)
    return TournamentPolicy(config) if config.recovers else SearchPolicy(config)
