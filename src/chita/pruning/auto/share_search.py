"""The search for t and lambda where each solve is a sweep over the network.

The first stage tries every share t of the layers' inputs with one lambda, and then the decades of
lambda next to it with the best t. Later stages keep t. The solution with the least held-out loss is
the choice, so that it is never worse on these samples than either curvature alone with the first
lambda.
"""

from __future__ import annotations

from chita.pruning.auto.candidates import Candidate
from chita.pruning.auto.ridge import Choice, RidgeSearch, downhill
from chita.pruning.auto.search import CandidateSearch, Evaluator
from chita.pruning.auto.stage_choice import Solvable, StageChoice, check_finite
from chita.pruning.held_out import LossesOf

FIRST = -4  # in half-decades: lambda = 0.01, the ridge of chita-layer
DECADE = 2


class ShareSearch(CandidateSearch):
    """A search among all candidates, then among lambdas, with few solves."""

    def choose(self, problem: Solvable, losses_of: LossesOf, other_losses: LossesOf) -> StageChoice:
        """Choose the best of this stage's candidates; see `CandidateSearch.choose`."""
        evaluator = Evaluator(problem, self._base, losses_of)
        ranks: dict[tuple[Candidate, int], float] = {}
        best: tuple[Choice, Candidate, int] | None = None

        def rank(candidate: Candidate, step: int) -> float:
            nonlocal best
            if (candidate, step) not in ranks:
                ridge = 10 ** (step / 2) if self._ridge is None else self._ridge
                choice = evaluator.best_ridge(candidate, RidgeSearch(ridge).choose)
                ranks[candidate, step] = choice.rank
                if best is None or choice.rank < best[0].rank:
                    best = choice, candidate, step
            return ranks[candidate, step]

        tried = self.space.all() if self._candidate is None else [self._candidate]
        first = FIRST if self._candidate is None else self._ridge_search(tried[0]).last
        first = FIRST if first is None else first
        candidate = min(tried, key=lambda each: rank(each, first))
        if self._ridge is None:
            downhill(lambda step: rank(candidate, step), first, DECADE)
        assert best is not None
        choice, candidate, step = best
        self._candidate = candidate
        self._ridge_search(candidate).last = step
        check_finite(choice)
        return StageChoice(choice, candidate, 1.0, evaluator.trials)
