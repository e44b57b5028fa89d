"""The candidate search: choose the candidate of a stage by the true loss on held-out samples.

The quadratic model does not reveal how far it is valid, nor whether the scale of a weight is
meaningful. The search therefore chooses the candidate (metric, blocks, first-order term), lambda
and the length of the step by the loss on held-out samples, which takes forward passes only. All
candidates of a stage are compared on the same samples. A candidate replaces another one only if its
loss is lower by more than two standard errors of the difference. Lambda and the step are chosen
anew at every stage, by the least loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from torch import Tensor

from chita.pruning.auto.candidates import Candidate, CandidateSpace, Trial
from chita.pruning.auto.ridge import Choice, RidgeSearch, Solve
from chita.pruning.auto.stage_choice import MASK, ContestLosses, Solvable, StageChoice, check_finite
from chita.pruning.held_out import LossesOf, PartLosses
from chita.pruning.stage_problem import Formulation
from chita.solver.solve import Solution

STEPS = (0.5,)  # fractions of the displacement to try besides the whole

Walk = Callable[[Solve, LossesOf], Choice]  # a search for lambda


@dataclass(frozen=True)
class Evaluator:
    """Solves candidates of one stage problem and records their losses.

    Attributes:
        problem: the stage problem.
        base: the formulation that candidates are applied to.
        losses_of: computes the losses on held-out samples.
        share: whether all lambdas of a candidate share the support of the first one.
        trials: the candidates so far, with their losses.
    """

    problem: Solvable
    base: Formulation
    losses_of: LossesOf
    share: bool = False
    trials: list[Trial] = field(default_factory=list)

    def best_ridge(self, candidate: Candidate, walk: Walk) -> Choice:
        """Search for the best lambda of a candidate.

        Args:
            candidate: the candidate.
            walk: the search, a method of `RidgeSearch`.
        """
        formulation, ridges, found = candidate.apply(self.base), list[float](), list[Solution]()

        def solve(ridge: float) -> Solution:
            ridges.append(ridge)
            if self.share and found:
                return self.problem.update(formulation, ridge, found[0])
            found.append(self.problem.solve(formulation, ridge))
            return found[-1]

        def losses(w: Tensor) -> PartLosses:
            return self.losses(candidate, ridges[-1], 1.0, w)

        return walk(solve, losses)

    def losses(self, candidate: Candidate, ridge: float, step: float, w: Tensor) -> PartLosses:
        """Compute the held-out losses of the weights w, (p,), and record them."""
        found = self.losses_of(w)
        self.trials.append(Trial(candidate, ridge, step, found.mean))
        return found


class CandidateSearch:
    """The choices of one run, stage by stage.

    The first stage screens the candidates, axis by axis. Each later stage keeps the candidate of
    the stage before, and compares it with one of its neighbours, in turn.

    Args:
        space: the candidates.
        base: the formulation that candidates are applied to.
        ridge: the given lambda, or None to search for it.
        steps: the fractions of the displacement to try; if there are any, the mask alone is tried
            as well.
    """

    share: ClassVar[bool] = False  # see `Evaluator`

    def __init__(
        self,
        space: CandidateSpace,
        base: Formulation,
        *,
        ridge: float | None = None,
        steps: Sequence[float] = STEPS,
    ) -> None:
        self.space, self._base, self._ridge, self._steps = space, base, ridge, steps
        self._candidate: Candidate | None = None
        self._ridges: dict[Candidate, RidgeSearch] = {}
        self._turn = 0

    def choose(self, problem: Solvable, losses_of: LossesOf, other_losses: LossesOf) -> StageChoice:
        """Choose the best of this stage's candidates.

        Args:
            problem: the problem of the stage.
            losses_of: computes the losses on held-out samples.
            other_losses: computes the losses on fewer samples, for the first comparison.

        Raises:
            ChitaError: the held-out loss is finite for no candidate.
        """
        if self._candidate is None:
            self._candidate = self._screen(Evaluator(problem, self._base, other_losses, self.share))
        evaluator = Evaluator(problem, self._base, losses_of, self.share)
        candidate = self._candidate
        choice = self._keep(evaluator, candidate)
        rival = self._next_rival(candidate)
        if rival is not None:
            other = self._challenge(evaluator, rival)
            if other.surely_beats(choice):
                choice, candidate = other, rival
        self._candidate = candidate
        choice, step = self._best_step(evaluator, candidate, choice)
        check_finite(choice)
        return StageChoice(choice, candidate, step, evaluator.trials)

    @property
    def needs_gradients(self) -> bool:
        """Whether the next choice depends on A, as every solve does."""
        return True

    @property
    def entrants(self) -> int:
        """No candidate is trained."""
        return 0

    def compare_all(self, problems: Sequence[Solvable], losses: ContestLosses) -> list[Trial]:
        """Compare no candidates: none is trained."""
        return []

    def only(self, problem: Solvable) -> StageChoice:
        """Solve the first candidate, for runs without held-out samples."""
        candidate = self.space.first
        ridge = self._ridge or 0.0  # a method without curvature does not use it
        solution = problem.solve(candidate.apply(self._base), ridge)
        return StageChoice(Choice(solution, ridge, None), candidate, 1.0, [])

    def _screen(self, evaluator: Evaluator) -> Candidate:
        """Move to the best candidate along each axis in turn, until none is better.

        One round is not enough: the best blocks depend on the first-order term, and that on the
        metric.
        """
        best, choices = self.space.first, dict[Candidate, Choice]()

        def look(candidate: Candidate) -> Choice:
            if candidate not in choices:
                choices[candidate] = self._look(evaluator, candidate)
            return choices[candidate]

        before = None
        while self.space.neighbours(best) and best != before:
            before = best
            for axis in range(len(self.space.axes)):
                others = self.space.along(best, axis)
                rival = min(others, key=lambda candidate: look(candidate).rank, default=best)
                if look(rival).surely_beats(look(best)):
                    best = rival
        return best

    def _next_rival(self, candidate: Candidate) -> Candidate | None:
        """Return the neighbour whose turn it is; None if there is none."""
        rivals = self.space.neighbours(candidate)
        if not rivals:
            return None
        self._turn += 1
        return rivals[(self._turn - 1) % len(rivals)]

    def _look(self, evaluator: Evaluator, candidate: Candidate) -> Choice:
        """Solve a candidate of the first comparison, with its best lambda up to a decade."""
        return evaluator.best_ridge(candidate, self._ridge_search(candidate).look)

    def _keep(self, evaluator: Evaluator, candidate: Candidate) -> Choice:
        """Solve the candidate of the stage before, with its best lambda at this stage."""
        return evaluator.best_ridge(candidate, self._ridge_search(candidate).choose)

    def _challenge(self, evaluator: Evaluator, candidate: Candidate) -> Choice:
        """Solve a rival.

        Its lambda is searched for as well: the best one drifts from stage to stage, and with the
        lambda of its last turn a better candidate could look worse.
        """
        return evaluator.best_ridge(candidate, self._ridge_search(candidate).choose)

    def _best_step(
        self, evaluator: Evaluator, candidate: Candidate, choice: Choice
    ) -> tuple[Choice, float]:
        """Return the best of the solution, points on the way to it and the mask alone.

        The mask has its own support: weights that joined the support of the solution are zero in
        w0, so that w0 on it would have fewer than k nonzeros.

        Returns:
            The choice, and the fraction of the displacement.
        """
        solution, best, fraction = choice.solution, choice, 1.0
        if not self._steps:
            return best, fraction
        from_here = evaluator.problem.still(solution)
        points = {
            step: replace(solution, w=from_here + step * (solution.w - from_here))
            for step in self._steps
        }
        w, support = evaluator.problem.mask(candidate.apply(self._base))
        points[MASK] = replace(solution, w=w, support=support)
        for step, point in points.items():
            losses = evaluator.losses(candidate, choice.ridge, step, point.w)
            found = Choice(point, choice.ridge, losses)
            if found.rank < best.rank:
                best, fraction = found, step
        return best, fraction

    def _ridge_search(self, candidate: Candidate) -> RidgeSearch:
        return self._ridges.setdefault(candidate, RidgeSearch(self._ridge))

    def state(self) -> dict[str, Any]:
        """Return the state that the next stage depends on, ready for JSON."""
        return {
            "candidate": None if self._candidate is None else self._candidate.to_dict(),
            "turn": self._turn,
            "ridges": [[c.to_dict(), search.last] for c, search in self._ridges.items()],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a result of `state`."""
        candidate = state["candidate"]
        self._candidate = None if candidate is None else Candidate.from_dict(candidate)
        self._turn = state["turn"]
        for candidate, last in state["ridges"]:
            self._ridge_search(Candidate.from_dict(candidate)).last = last
