"""Guarded stages: what a stage does is chosen among a few candidates by the true loss.

The quadratic model knows neither how far it holds nor whether the scale of a weight means anything.
So the form of a stage's problem (the metric, blocks, the first-order term), its lambda and how far
to go along the displacement are settled by the loss on held-out samples: forward passes only.
Candidates are compared on the same samples, and a form is given up for another one only where the
loss is lower by more than two standard errors of the difference. Lambda and the step, which every
stage chooses anew, take the least loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from chita.errors import ChitaError
from chita.files.finite import finite_or_none
from chita.pruning.auto.ridge import Choice, RidgeSearch
from chita.pruning.held_out import LossesOf, PartLosses
from chita.solver.solve import Solution

STEPS = (0.5,)  # shares of the displacement to try beside all of it
MASK = 0.0  # the share where nothing moves: the mask alone


@dataclass(frozen=True)
class Form:
    """How the problem of a stage is posed.

    Attributes:
        metric: in METRICS.
        block_size: of blocks; None for one problem over all columns.
        first_order: whether it has the first-order term.
        block_sweeps: rounds that blocks take turns; 0 for blocks apart.
    """

    metric: str
    block_size: int | None
    first_order: bool
    block_sweeps: int = 0

    def __str__(self) -> str:
        blocks = "no blocks" if self.block_size is None else f"blocks of {self.block_size}"
        if self.block_sweeps:
            blocks += " that talk"
        term = "with" if self.first_order else "without"
        return f"{self.metric} metric, {blocks}, {term} the first-order term"


@dataclass(frozen=True)
class Forms:
    """The forms to choose from: every combination of these, the first of each at the start.

    Attributes:
        metrics: in METRICS.
        blocks: sizes of blocks, and their sweeps.
        first_order: with or without the term.
    """

    metrics: Sequence[str]
    blocks: Sequence[tuple[int | None, int]]
    first_order: Sequence[bool]

    @property
    def first(self) -> Form:
        size, sweeps = self.blocks[0]
        return Form(self.metrics[0], size, self.first_order[0], sweeps)

    def of_one_size(self) -> Forms:
        """Those with blocks of the first size alone."""
        size = self.first.block_size
        return replace(self, blocks=[pair for pair in self.blocks if pair[0] == size])

    def kinds_beside(self, form: Form) -> list[list[Form]]:
        """Those that differ in the metric alone, in the first-order term alone, in blocks alone."""
        return [
            [replace(form, metric=m) for m in self.metrics if m != form.metric],
            [replace(form, first_order=f) for f in self.first_order if f != form.first_order],
            [
                replace(form, block_size=size, block_sweeps=sweeps)
                for size, sweeps in self.blocks
                if (size, sweeps) != (form.block_size, form.block_sweeps)
            ],
        ]

    def beside(self, form: Form) -> list[Form]:
        """Those that differ in one thing."""
        return [other for kind in self.kinds_beside(form) for other in kind]


@dataclass(frozen=True)
class Trial:
    """A candidate and its held-out loss; `step` is the share of the displacement."""

    form: Form
    ridge: float
    step: float
    loss: float

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        loss = finite_or_none(self.loss)
        return {**asdict(self.form), "ridge": self.ridge, "step": self.step, "loss": loss}


@dataclass(frozen=True)
class Guarded:
    """What a stage does: the choice, its form and step, and all that was tried for it."""

    choice: Choice
    form: Form
    step: float
    trials: list[Trial]

    @property
    def why(self) -> str:
        """In words; nothing, where there was no choice."""
        if not self.trials:
            return ""
        what = f"{self.form}, lambda = {self.choice.ridge:.2g}"
        if self.step < 1:
            moved = f"{self.step:.0%} of the displacement"
            what += ", mask alone" if self.step == MASK else f", {moved}"
        masks = [trial.loss for trial in self.trials if trial.step == MASK]
        alone = f"; the mask alone has {min(masks):.4g}" if masks else ""
        loss = self.choice.held_out_loss
        return f"{what}: held-out loss {loss:.4g}, chosen among {len(self.trials)}{alone}"


SolveForm = Callable[[Form, float], Solution]  # form and lambda -> the solution of the stage
Still = Callable[[Solution], Tensor]  # w0 on the support of a solution, zero elsewhere
Mask = Callable[[Form], tuple[Tensor, Tensor]]  # P_k(w0) in the metric of a form, and its support


class Guard:
    """The choices of one run, stage by stage.

    The first stage looks at each kind of form in turn. Later ones keep the form of the stage before
    and try one that differs in one thing, another one each time.

    Args:
        forms: to choose from.
        ridge: the lambda given, or None to search for it.
        steps: shares of the displacement to try, with the mask alone; none, and neither is tried.
    """

    def __init__(
        self, forms: Forms, *, ridge: float | None = None, steps: Sequence[float] = STEPS
    ) -> None:
        self.forms, self._ridge, self._steps = forms, ridge, steps
        self._form: Form | None = None
        self._searches: dict[Form, RidgeSearch] = {}
        self._turn = 0

    def choose(
        self,
        solve: SolveForm,
        still: Still,
        mask: Mask,
        losses_of: LossesOf,
        scout: LossesOf,
    ) -> Guarded:
        """The best of this stage's candidates.

        Args:
            solve: gives the solution of the stage.
            still: gives w0 on its support.
            mask: gives w0 with its largest weights only.
            losses_of: gives the losses on held-out samples.
            scout: the same on fewer samples, to tell one form from another for the first time.

        Raises:
            ChitaError: the held-out loss is finite for no candidate.
        """
        trials: list[Trial] = []
        if self._form is None:
            self._form = self._first_form(solve, scout)
        form = self._form
        choice = self._search(form).choose(*_watched(form, solve, losses_of, trials))
        rival = self._rival(form, solve, losses_of, trials)
        if rival is not None and rival[0].surely_beats(choice):
            choice, form = rival
        self._form = form
        choice, step = self._best_step(form, choice, still, mask, losses_of, trials)
        if math.isinf(choice.rank):
            raise ChitaError(
                f"the held-out loss is {choice.held_out_loss} for every candidate that was tried; "
                "the data must be finite, or the ridge larger"
            )
        return Guarded(choice, form, step, trials)

    def only(self, solve: SolveForm) -> Guarded:
        """The first form, where nothing is held out to choose by."""
        form, ridge = self.forms.first, self._ridge or 0.0  # without curvature it is unused
        return Guarded(Choice(solve(form, ridge), ridge, None), form, 1.0, [])

    def _first_form(self, solve: SolveForm, scout: LossesOf) -> Form:
        """One kind after the other, the best of each kept, and round again until none is better:
        what blocks are good for depends on the first-order term, and that on the metric."""
        best, choices = self.forms.first, dict[Form, Choice]()

        def look(form: Form) -> Choice:
            if form not in choices:
                choices[form] = self._search(form).look(*_watched(form, solve, scout, []))
            return choices[form]

        before = None
        while self.forms.beside(best) and best != before:
            before = best
            for kind in range(len(self.forms.kinds_beside(best))):
                others = self.forms.kinds_beside(best)[kind]
                rival = min(others, key=lambda form: look(form).rank, default=best)
                if look(rival).surely_beats(look(best)):
                    best = rival
        return best

    def _rival(
        self, form: Form, solve: SolveForm, losses_of: LossesOf, trials: list[Trial]
    ) -> tuple[Choice, Form] | None:
        """The form beside this one whose turn it is, and its choice; None if it is the only one.

        Its lambda is searched for, too: with that of its last turn, which was best for a stage long
        gone, a form that is the better one would seem the worse.
        """
        rivals = self.forms.beside(form)
        if not rivals:
            return None
        rival = rivals[self._turn % len(rivals)]
        self._turn += 1
        watched = _watched(rival, solve, losses_of, trials)
        return self._search(rival).choose(*watched), rival

    def _best_step(
        self,
        form: Form,
        choice: Choice,
        still: Still,
        mask: Mask,
        losses_of: LossesOf,
        trials: list[Trial],
    ) -> tuple[Choice, float]:
        """The best of the solution, points on the way to it and the mask alone; the share of the
        way. The mask has a support of its own: weights that joined the solution's are zero in w0,
        and fewer than k would be left."""
        solution, best, share = choice.solution, choice, 1.0
        if not self._steps:
            return best, share
        from_here = still(solution)
        points = {
            step: replace(solution, w=from_here + step * (solution.w - from_here))
            for step in self._steps
        }
        w, support = mask(form)
        points[MASK] = replace(solution, w=w, support=support)
        for step, point in points.items():
            losses = losses_of(point.w)
            trials.append(Trial(form, choice.ridge, step, losses.mean))
            found = Choice(point, choice.ridge, losses)
            if found.rank < best.rank:
                best, share = found, step
        return best, share

    def _search(self, form: Form) -> RidgeSearch:
        return self._searches.setdefault(form, RidgeSearch(self._ridge))

    def state(self) -> dict[str, Any]:
        """What the next stage goes by, ready for JSON."""
        return {
            "form": None if self._form is None else asdict(self._form),
            "turn": self._turn,
            "ridges": [[asdict(form), search.last] for form, search in self._searches.items()],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self._form = None if state["form"] is None else Form(**state["form"])
        self._turn = state["turn"]
        for form, last in state["ridges"]:
            self._search(Form(**form)).last = last


def _watched(
    form: Form, solve: SolveForm, losses_of: LossesOf, trials: list[Trial]
) -> tuple[Callable[[float], Solution], LossesOf]:
    """The solver and the loss for one form; what is tried goes into `trials`."""
    ridges: list[float] = []

    def solve_form(ridge: float) -> Solution:
        ridges.append(ridge)
        return solve(form, ridge)

    def losses(w: Tensor) -> PartLosses:
        found = losses_of(w)
        trials.append(Trial(form, ridges[-1], 1.0, found.mean))
        return found

    return solve_form, losses
