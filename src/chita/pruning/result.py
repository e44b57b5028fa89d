"""What pruning gives back: the model, its masks, and an account of every layer and stage."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from chita.model.counts import Counts
from chita.model.weights import Weights
from chita.pruning.config import PruneConfig
from chita.pruning.repair import RepairRow


@dataclass(frozen=True)
class LayerRow:
    """How much of one parameter is left."""

    name: str
    shape: tuple[int, ...]
    weights: int
    nonzeros: int

    @property
    def sparsity(self) -> float:
        return 1 - self.nonzeros / self.weights


@dataclass(frozen=True)
class StageRow:
    """One stage: what it aimed at, what it solved and what it cost.

    `loss` is the mean calibration loss before the stage, at the weights its gradients were taken
    at; `held_out_loss` the one after it, on samples that chose nothing, with its standard error
    `held_out_error`, and `accuracy` that on the same samples, in percent, where min_accuracy was
    asked for. `choice_loss` is the loss on the samples that chose what the stage does: it is lower
    than the true one. A method without curvature has none of these losses, and no objective; nor
    has a stage that went only a part of the way. `sample_gradients` counts the samples whose
    gradients the stage computed. `metric`,
    `block_size`, `block_sweeps` and `first_order` are the form of its problem, `step` the share of
    the displacement it took, `candidates` all that was tried before, with their held-out losses (on
    a half of many samples: stages take turns with the halves), and `why` says in words what was
    chosen. `dead` counts the columns of A that were zero and whose weights were therefore removed
    first, in layers that have other columns. A stage is not accepted where it falls below a floor
    that was asked for: its weights were put back.
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
    guard_seconds: float = 0.0
    held_out_error: float | None = None
    choice_loss: float | None = None
    sample_gradients: int = 0
    accepted: bool = True
    metric: str = "plain"
    block_size: int | None = None
    block_sweeps: int = 0
    first_order: bool = True
    step: float = 1.0
    accuracy: float | None = None
    dead: int = 0
    why: str = ""
    candidates: list[dict[str, Any]] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class Seconds:
    """Where the time went; `guard` is what held-out losses took."""

    gradients: float
    solve: float
    guard: float
    total: float


@dataclass(frozen=True)
class PruneResult:
    """The outcome of `chita.prune`.

    Attributes:
        model: the pruned model (the one given, unless inplace=False).
        masks: parameter name -> bool tensor, True where a weight was kept.
        layers: a row for each pruned parameter.
        stages: a row for each stage.
        samples: n, the rows of A that were used (0 for a method without curvature).
        seconds: where the time went.
        peak_memory_bytes: the most memory the process, or its GPU, held.
        config: what was asked for.
        counts: parameters, non-zeros, bytes and multiply-adds of the whole model.
        groups: under a pattern, how many of its groups keep how many weights: {2: all} for 2:4.
        repairs: what was tried at the end without training, and whether it helped.
        held_out_loss: of the model as it is returned, on samples that chose nothing; None if no
            samples were held out.
        held_out_error: its standard error.
    """

    model: nn.Module = field(repr=False)
    masks: dict[str, Tensor] = field(repr=False)
    layers: list[LayerRow]
    stages: list[StageRow]
    samples: int
    seconds: Seconds
    peak_memory_bytes: int
    config: PruneConfig
    counts: Counts
    groups: dict[int, int] | None = None
    repairs: list[RepairRow] = field(default_factory=list)
    held_out_loss: float | None = None
    held_out_error: float | None = None

    @property
    def sample_gradients(self) -> int:
        """The samples whose gradients all stages computed; an epoch of N samples counts as N."""
        return sum(row.sample_gradients for row in self.stages)

    @property
    def weights(self) -> int:
        """p, the prunable weights."""
        return sum(row.weights for row in self.layers)

    @property
    def nonzeros(self) -> int:
        return sum(row.nonzeros for row in self.layers)

    @property
    def sparsity(self) -> float:
        """The share of the prunable weights that are zero now."""
        return 1 - self.nonzeros / self.weights

    @property
    def last(self) -> StageRow | None:
        """The last stage that was accepted, whose weights the model has; None if none was."""
        return next((row for row in reversed(self.stages) if row.accepted), None)

    @property
    def objective(self) -> float | None:
        """Q at the end of the last stage."""
        return None if self.last is None else self.last.objective

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tensors, ready for JSON."""
        return {
            "method": self.config.method,
            "loss": self.config.loss,
            "sparsity": self.sparsity,
            "weights": self.weights,
            "nonzeros": self.nonzeros,
            "samples": self.samples,
            "sample_gradients": self.sample_gradients,
            "held_out_loss": self.held_out_loss,
            "held_out_error": self.held_out_error,
            "objective": self.objective,
            "pattern": self.config.pattern,
            "groups": self.groups and {str(kept): many for kept, many in self.groups.items()},
            "ridge": None if self.last is None else self.last.ridge,
            "seconds": asdict(self.seconds),
            "peak_memory_bytes": self.peak_memory_bytes,
            "seed": self.config.seed,
            "counts": self.counts.to_dict(),
            "layers": [{**asdict(row), "sparsity": row.sparsity} for row in self.layers],
            "stages": [asdict(row) for row in self.stages],
            "repairs": [row.to_dict() for row in self.repairs],
        }

    def __str__(self) -> str:
        from chita.report.tables import as_text, counts_table, layer_table

        return as_text(layer_table(self)) + as_text(counts_table(self.counts))


def layer_rows(weights: Weights) -> list[LayerRow]:
    """The rows of the model as it is now."""
    return [
        LayerRow(
            weight.name,
            tuple(weight.parameter.shape),
            weight.parameter.numel(),
            int(torch.count_nonzero(weight.parameter)),
        )
        for weight in weights
    ]
