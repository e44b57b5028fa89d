"""The search of `auto` without recovery: the same comparisons with a few solves for each stage.

Solves take most of the time of a search. Three rules save them. All lambdas of a candidate share
the support of the first one, so that each further lambda is only an update of the weights. A stage
tries one lambda besides the last choice, on one side of it; the best lambda drifts slowly. Once all
rivals had two turns, a rival is solved at every second stage only. Coupled blocks take several
times as long as other candidates: they take part in the first comparison if independent blocks win
there, and later only if they won it.
"""

from __future__ import annotations

from functools import partial

from chita.pruning.auto.candidates import Candidate
from chita.pruning.auto.ridge import DOWN, UP, Choice
from chita.pruning.auto.search import CandidateSearch, Evaluator

ROUNDS = 2  # in which every rival is solved, one at each stage
RIVAL_EVERY = 2  # stages, afterwards
SIDE_EVERY = 2  # stages after which lambda is sought on the other side


class SparingSearch(CandidateSearch):
    """A candidate search with few solves."""

    share = True

    def _keep(self, evaluator: Evaluator, candidate: Candidate) -> Choice:
        side = (UP, DOWN)[self._turn // SIDE_EVERY % 2]
        walk = partial(self._ridge_search(candidate).follow, side=side)
        return evaluator.best_ridge(candidate, walk)

    def _next_rival(self, candidate: Candidate) -> Candidate | None:
        turn, self._turn = self._turn, self._turn + 1
        rivals = [rival for rival in self.space.neighbours(candidate) if not self._couples(rival)]
        late = turn - ROUNDS * len(rivals)
        if not rivals or (late > 0 and late % RIVAL_EVERY):
            return None
        return rivals[(turn if late < 0 else late // RIVAL_EVERY) % len(rivals)]

    def _couples(self, candidate: Candidate) -> bool:
        return candidate.apply(self._base).options.block_sweeps > 0
