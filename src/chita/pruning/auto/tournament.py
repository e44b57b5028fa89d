"""The tournament: choose the support and the update of a stage by their losses after training.

Entrants are masks, which keep the largest weights in some metric and move none, and CHITA solves.
What has the lower loss right after pruning often ends worse, because the training that follows
changes all weights. Entrants are therefore compared after the same few training steps, on held-out
samples: all of them before the first stage, at sparsities where they matter, and then the best one
so far with one rival at each stage, in turn. The rival replaces it if its loss is lower by more
than two standard errors. An entrant that has been worse by as much in two comparisons is excluded.
If no rival is left, no comparison takes place. A mask that was the best one so far may remove a
whole layer at the next stage, however. All entrants are then compared.

A solve lowers the loss at once. A few training steps leave most of this gain, and many leave none
of it, so that short comparisons favour solves. They are therefore excluded before the first stage
unless one is also surely better than its mask after as many steps as a stage has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chita.pruning.auto.candidates import Candidate, CandidateSpace, Trial
from chita.pruning.auto.ridge import Choice, RidgeSearch
from chita.pruning.auto.stage_choice import MASK, ContestLosses, Solvable, StageChoice, check_finite
from chita.pruning.held_out import LossesOf
from chita.pruning.stage_problem import NEEDS_GRADIENTS, Formulation
from chita.solver.solve import Solution

MOST_DEFEATS = 2  # comparisons in which an entrant is surely worse, before it is excluded
SOLVED = 1.0  # the whole displacement of a solve; MASK is the other value


@dataclass(frozen=True)
class Entrant:
    """A way to choose the weights of a stage.

    Attributes:
        candidate: how the stage problem is posed.
        step: MASK to keep the largest weights unchanged, or SOLVED.
    """

    candidate: Candidate
    step: float

    def needs_gradients(self, base: Formulation) -> bool:
        """Return whether the entrant depends on A."""
        return self.step == SOLVED or self.candidate.apply(base).metric in NEEDS_GRADIENTS

    def to_dict(self) -> dict[str, Any]:
        """Return the values by key, ready for JSON."""
        return {**self.candidate.to_dict(), "step": self.step}


class Tournament:
    """The choices of one run with recovery, stage by stage.

    Args:
        space: the candidates, which differ in the metric. Each is a mask, and a solve unless A is
            too short to couple all columns.
        base: the formulation that candidates are applied to.
        ridge: the given lambda, or None to search for it.
    """

    def __init__(
        self, space: CandidateSpace, base: Formulation, *, ridge: float | None = None
    ) -> None:
        first = space.first
        candidates = [first, *space.along(first, 0)]
        steps = [MASK, SOLVED] if first.apply(base).block_size is None else [MASK]
        self._masks = len(candidates)
        self._entrants = [Entrant(c, step) for step in steps for c in candidates]
        self._defeats = [0] * len(self._entrants)
        self._best, self._turn = 0, 0  # numbers of entrants
        self._base, self._ridge = base, ridge
        self._ridges: dict[Candidate, RidgeSearch] = {}

    @property
    def entrants(self) -> int:
        """The number of entrants that a comparison compares: masks, and one solve for all."""
        left = self._left()
        masks = sum(number < self._masks for number in left)
        return masks + (len(left) > masks)

    @property
    def needs_gradients(self) -> bool:
        """Whether an entrant that is not excluded depends on A."""
        return any(self._entrants[n].needs_gradients(self._base) for n in self._left())

    def compare_all(self, problems: Sequence[Solvable], losses: ContestLosses) -> list[Trial]:
        """Compare the entrants before the first stage.

        Args:
            problems: problems of a stage, at several sparsities.
            losses: the losses by which they are compared.

        Returns:
            A trial for each entrant that was trained.
        """
        trials = [trial for problem in problems for trial in self._compare(problem, losses)]
        return trials + self._confirm_solves(problems[0], losses)

    def _compare(self, problem: Solvable, losses: ContestLosses) -> list[Trial]:
        """Compare the masks, and a solve in the metric of the best one."""
        choices: dict[int, Choice] = {}
        given = losses.right_after, losses.after_few

        def best_of(numbers: Iterable[int]) -> int:
            left = self._left()
            choices.update({n: self._tried(n, problem, *given) for n in numbers if n in left})
            return min(choices, key=lambda number: choices[number].rank)

        best = best_of(range(self._masks))
        best = best_of([best + self._masks])
        self._count(best, choices)
        return [self._trial(number, choice) for number, choice in choices.items()]

    def _confirm_solves(self, problem: Solvable, losses: ContestLosses) -> list[Trial]:
        """Exclude all solves unless the one of the best metric is surely better than its mask."""
        mask = self._best % self._masks
        solve = mask + self._masks
        pair = (mask, solve) if solve in self._left() else ()
        given = losses.right_after, losses.after_stage
        choices = {number: self._tried(number, problem, *given) for number in pair}
        if not (choices and choices[solve].surely_beats(choices[mask])):
            solves = range(self._masks, len(self._entrants))
            self._defeats = [*self._defeats[: self._masks], *(MOST_DEFEATS for _ in solves)]
            self._keep(mask)
        return [self._trial(number, choice) for number, choice in choices.items()]

    def choose(self, problem: Solvable, losses_of: LossesOf, other_losses: LossesOf) -> StageChoice:
        """Compare the best entrant so far with a rival, and return the choice of the better one.

        Args:
            problem: the problem of the stage.
            losses_of: computes the losses on held-out samples, which choose lambda.
            other_losses: computes the losses after a few steps of training.

        Raises:
            ChitaError: the loss is finite for neither.
        """
        rival = self._next_rival()
        if not rival:
            alone = self._solve(self._best, problem, losses_of)
            if not problem.empties_layer(alone.solution.support):
                return self._chosen(self._best, alone, [])
        choices: dict[int, Choice] = {}

        def best_of(numbers: Iterable[int]) -> int:
            choices.update({n: self._tried(n, problem, losses_of, other_losses) for n in numbers})
            best = self._best
            for number, choice in choices.items():
                if choice.surely_beats(choices[best]):
                    best = number
            return best

        best = best_of([self._best, *rival])
        if problem.empties_layer(choices[best].solution.support):
            best = best_of([n for n in self._possible() if n not in choices])
        check_finite(choices[best])
        self._count(best, choices)
        trials = [self._trial(number, choice) for number, choice in choices.items()]
        return self._chosen(best, choices[best], trials)

    def _chosen(self, number: int, choice: Choice, trials: list[Trial]) -> StageChoice:
        entrant = self._entrants[number]
        return StageChoice(choice, entrant.candidate, entrant.step, trials)

    def _count(self, best: int, choices: Mapping[int, Choice]) -> None:
        """Store the best entrant, and count the comparisons that the others have lost."""
        for number, choice in choices.items():
            self._defeats[number] += choices[best].surely_beats(choice)
        self._keep(best)

    def _keep(self, best: int) -> None:
        """Store the best entrant, which may have been excluded.

        It is then the best one where another mask empties a layer, or the mask of a solve that was
        better after a few steps and is not after many.
        """
        self._defeats[best] = min(self._defeats[best], MOST_DEFEATS - 1)
        self._best = best

    def only(self, problem: Solvable) -> StageChoice:
        """Return the first mask, for runs without held-out samples."""
        first = self._entrants[0]
        return StageChoice(_masked(problem, first, self._base), first.candidate, MASK, [])

    def _possible(self) -> list[int]:
        """Return all entrants, except those that depend on an A which was not computed."""
        with_gradients = self.needs_gradients
        return [
            number
            for number, entrant in enumerate(self._entrants)
            if with_gradients or not entrant.needs_gradients(self._base)
        ]

    def _left(self) -> list[int]:
        """Return the entrants that are not excluded."""
        return [n for n, defeats in enumerate(self._defeats) if defeats < MOST_DEFEATS]

    def _next_rival(self) -> list[int]:
        """Return the entrant that is compared next with the best one, if there is one."""
        others = [number for number in self._left() if number != self._best]
        if not others:
            return []
        self._turn += 1
        return [others[(self._turn - 1) % len(others)]]

    def _tried(
        self, number: int, problem: Solvable, losses_of: LossesOf, worth: LossesOf
    ) -> Choice:
        """Return the choice of an entrant with the losses after a few steps of training."""
        choice = self._solve(number, problem, losses_of)
        return Choice(choice.solution, choice.ridge, worth(choice.solution.w))

    def _trial(self, number: int, choice: Choice) -> Trial:
        entrant = self._entrants[number]
        assert choice.losses is not None
        return Trial(entrant.candidate, choice.ridge, entrant.step, choice.losses.mean)

    def _solve(self, number: int, problem: Solvable, losses_of: LossesOf) -> Choice:
        """Return the weights of an entrant; a solve chooses lambda by the loss right after it."""
        entrant = self._entrants[number]
        if entrant.step == MASK:
            return _masked(problem, entrant, self._base)
        formulation = entrant.candidate.apply(self._base)
        search = self._ridges.setdefault(entrant.candidate, RidgeSearch(self._ridge))
        return search.look(lambda ridge: problem.solve(formulation, ridge), losses_of)

    def state(self) -> dict[str, Any]:
        """Return the state that the next stage depends on, ready for JSON."""
        return {
            "defeats": self._defeats,
            "best": self._best,
            "turn": self._turn,
            "ridges": [[c.to_dict(), search.last] for c, search in self._ridges.items()],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a result of `state`."""
        self._defeats = list(state["defeats"])
        self._best, self._turn = state["best"], state["turn"]
        for candidate, last in state["ridges"]:
            search = RidgeSearch(self._ridge)
            search.last = last
            self._ridges[Candidate.from_dict(candidate)] = search


def _masked(problem: Solvable, entrant: Entrant, base: Formulation) -> Choice:
    w, support = problem.mask(entrant.candidate.apply(base))
    return Choice(Solution(w, support, 0.0, 0, True, []), 0.0, None)
