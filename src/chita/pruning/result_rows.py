"""The rows of a result: one for each layer, stage and repair."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from chita.pruning.auto.candidates import Candidate


def json_safe(value: Any) -> Any:
    """Return a value with None in place of numbers that are not finite, which JSON lacks.

    Args:
        value: dicts and lists of any depth; other values are returned as they are.
    """
    if isinstance(value, Mapping):
        return {key: json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class LayerRow:
    """How many weights of one parameter are left."""

    name: str
    shape: tuple[int, ...]
    weights: int
    nonzeros: int

    @property
    def sparsity(self) -> float:
        """The fraction of the weights that are zero."""
        return 1 - self.nonzeros / self.weights

    def to_dict(self) -> dict[str, Any]:
        """Return all values by name, ready for JSON."""
        return {**asdict(self), "sparsity": self.sparsity}


@dataclass(frozen=True)
class StageRow:
    """One stage: its target, its solution and its cost.

    A method without curvature has no losses and no objective. A stage that takes only a part of the
    displacement has no objective either.

    Attributes:
        stage: the number of the stage, from 1.
        sparsity: the target.
        kept: the number of weights that are kept.
        ridge: lambda.
        objective: Q at the solution.
        loss: the mean calibration loss before the stage, at the weights of its gradients; None for
            a method that prunes block by block.
        held_out_loss: the loss after the stage, on samples that are not used for any choice
            except the floor.
        iterations: the updates that the algorithm took.
        converged: whether the algorithm converged.
        jitter: the value added to the diagonal of a system to make it positive definite.
        gradient_seconds: the time for gradients.
        solve_seconds: the time for solves.
        candidate: the metric, the blocks and the first-order term of the stage problem.
        held_out_seconds: the time for held-out losses.
        held_out_error: the standard error of `held_out_loss`.
        choice_loss: the loss on the samples by which the stage was chosen, which is biased low.
        sample_gradients: the samples whose gradients the stage computed.
        accepted: whether the floor holds; otherwise the weights were restored.
        step: the fraction of the displacement.
        accuracy: in percent, on the samples of `held_out_loss`; computed for min_accuracy only.
        dead: the zero columns of A whose weights were removed first, in layers that have others.
        why: the choice in words.
        mask_loss: with recovery, the loss of the mask alone, on the samples of `choice_loss`.
        solved_loss: the loss of the solution, before the training.
        recovery_steps: the training steps after the solution.
        recovery_seconds: their time.
        recovered: whether the training lowered the loss; otherwise it was undone.
        trained_on: "distill" for the outputs of the dense network, "loss" for the loss of the run.
        candidates: everything that was tried, with held-out losses. If there are many samples,
            these are losses on one half, and stages alternate between the halves.
    """

    stage: int
    sparsity: float
    kept: int
    ridge: float | None
    objective: float | None
    loss: float | None
    held_out_loss: float | None
    iterations: int
    converged: bool
    jitter: float
    gradient_seconds: float
    solve_seconds: float
    candidate: Candidate
    held_out_seconds: float = 0.0
    held_out_error: float | None = None
    choice_loss: float | None = None
    sample_gradients: int = 0
    accepted: bool = True
    step: float = 1.0
    accuracy: float | None = None
    dead: int = 0
    why: str = ""
    mask_loss: float | None = None
    solved_loss: float | None = None
    recovery_steps: int = 0
    recovery_seconds: float = 0.0
    recovered: bool = False
    trained_on: str | None = None
    candidates: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def seconds(self) -> float:
        """The time of the stage."""
        others = self.held_out_seconds + self.recovery_seconds
        return self.gradient_seconds + self.solve_seconds + others

    def to_dict(self) -> dict[str, Any]:
        """Return all values by name, those of the candidate among them, ready for JSON."""
        row = {**vars(self), **self.candidate.to_dict()}
        del row["candidate"]
        return dict(json_safe(row))

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> StageRow:
        """Return the row that `to_dict` converted."""
        own = {each.name for each in fields(cls)}
        values = {name: value for name, value in row.items() if name in own}
        return cls(**values, candidate=Candidate.from_dict(row))


@dataclass(frozen=True)
class Gains:
    """What the parts of a run with recovery gained: decreases of the held-out loss, in total.

    The losses are those of the samples that guard the training.

    Attributes:
        solve: the decrease from the mask alone to the solution.
        recovery: the decrease by the training.
        solves: the stages whose weights a solve moved.
        trainings: the stages whose training was kept.
    """

    solve: float
    recovery: float
    solves: int
    trainings: int

    @classmethod
    def of(cls, stages: Sequence[StageRow]) -> Gains | None:
        """Return the gains of the accepted stages; None without recovery."""
        trained = [row for row in stages if row.accepted and row.recovery_steps]
        if not trained:
            return None
        return cls(
            solve=sum(_decrease(row.mask_loss, row.solved_loss) for row in trained),
            recovery=sum(_decrease(row.solved_loss, row.choice_loss) for row in trained),
            solves=sum(row.step > 0 and row.ridge is not None for row in trained),
            trainings=sum(row.recovered for row in trained),
        )


def _decrease(before: float | None, after: float | None) -> float:
    return 0.0 if before is None or after is None else before - after


@dataclass(frozen=True)
class RepairRow:
    """One repair that was tried.

    Attributes:
        repair: "batch norm" or "biases".
        loss_before: the loss on held-out samples.
        loss_after: the loss with the repair.
        kept: whether the loss fell, and the floor held.
    """

    repair: str
    loss_before: float
    loss_after: float
    kept: bool

    def to_dict(self) -> dict[str, Any]:
        """Return all values by name, ready for JSON."""
        return dict(json_safe(asdict(self)))


@dataclass(frozen=True)
class Seconds:
    """The time of a run, by purpose; `held_out` is the time for held-out losses."""

    gradients: float
    solve: float
    held_out: float
    recovery: float
    total: float
