"""PruneResult: the pruned model, its masks, and a report on every layer and stage."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from chita.model.counts import Counts, count
from chita.model.samples.batch import Batch
from chita.model.weights import Weights
from chita.pruning.config import PruneConfig
from chita.pruning.held_out import Measurement
from chita.pruning.result_rows import Gains, LayerRow, RepairRow, Seconds, StageRow, json_safe
from chita.report.html_table import as_html
from chita.report.tables import as_text, counts_table, layer_table
from chita.solver.matrix.memory import peak_memory_bytes


@dataclass(frozen=True)
class PruneResult:
    """The outcome of `chita.prune`.

    Attributes:
        model: the pruned model (the given one, unless inplace=False).
        masks: parameter name -> bool tensor, True where a weight was kept.
        layers: a row for each pruned parameter.
        stages: a row for each stage.
        samples: n, the rows of A (0 for a method without curvature).
        seconds: the time, by purpose.
        peak_memory_bytes: the peak memory of the process, or of its GPU.
        config: the options of the run.
        counts: parameters, non-zeros, bytes and multiply-adds of the whole model.
        groups: under a pattern, how many of its groups keep how many weights: {2: all} for 2:4.
        repairs: a row for each repair that was tried at the end.
        held_out_loss: the loss of the returned model, on samples that are not used for any choice
            except the floor; None if no samples were held out.
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

    @classmethod
    def collect(
        cls,
        model: nn.Module,
        weights: Weights,
        kept: Tensor,
        stages: list[StageRow],
        *,
        config: PruneConfig,
        samples: int,
        sample: Batch | None,
        groups: dict[int, int] | None,
        repairs: list[RepairRow],
        measurement: Measurement,
        began: float,
    ) -> PruneResult:
        """Return the result of a run that has ended.

        Args:
            model: the pruned model.
            weights: its prunable weights, p in total.
            kept: the support, (p,) bool.
            stages: a row for each stage.
            config: the options of the run.
            samples: n, the rows of A.
            sample: a sample to count multiply-adds with, if there is one.
            groups: under a pattern, how many of its groups keep how many weights.
            repairs: a row for each repair.
            measurement: the model, measured on held-out samples.
            began: when the run began, by `time.perf_counter`.
        """
        return cls(
            model=model,
            masks={name: mask.clone() for name, mask in weights.split(kept).items()},
            layers=layer_rows(weights),
            stages=stages,
            samples=samples,
            seconds=Seconds(
                gradients=sum(row.gradient_seconds for row in stages),
                solve=sum(row.solve_seconds for row in stages),
                held_out=sum(row.held_out_seconds for row in stages),
                recovery=sum(row.recovery_seconds for row in stages),
                total=time.perf_counter() - began,
            ),
            peak_memory_bytes=peak_memory_bytes(weights.device),
            config=config,
            counts=count(model, None if sample is None else sample.to(weights.device).inputs),
            groups=groups,
            repairs=repairs,
            held_out_loss=measurement.loss,
            held_out_error=measurement.loss_error,
        )

    @property
    def title(self) -> str:
        """The method, and the pattern if there is one."""
        return " ".join(filter(None, [self.config.method, self.config.pattern]))

    @property
    def sample_gradients(self) -> int:
        """The number of sample gradients that all stages computed; a sample counts every time."""
        return sum(row.sample_gradients for row in self.stages)

    @property
    def training_steps(self) -> int:
        """The number of training steps of all stages."""
        return sum(row.recovery_steps for row in self.stages)

    @property
    def trained_on(self) -> str | None:
        """What the training used: "distill" or "loss", as in `StageRow`; None without recovery."""
        return self.stages[-1].trained_on if self.stages else None

    @property
    def gains(self) -> Gains | None:
        """What the solves and the training gained; None without recovery."""
        return Gains.of(self.stages)

    @property
    def weights(self) -> int:
        """p, the number of prunable weights."""
        return sum(row.weights for row in self.layers)

    @property
    def nonzeros(self) -> int:
        """The number of prunable weights that are not zero."""
        return sum(row.nonzeros for row in self.layers)

    @property
    def sparsity(self) -> float:
        """The fraction of the prunable weights that are zero."""
        return 1 - self.nonzeros / self.weights

    @property
    def last(self) -> StageRow | None:
        """The last accepted stage, whose weights the model has; None if there is none."""
        return next((row for row in reversed(self.stages) if row.accepted), None)

    @property
    def objective(self) -> float | None:
        """Q at the end of the last accepted stage."""
        return None if self.last is None else self.last.objective

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the tensors, ready for JSON."""
        groups = self.groups or {}
        record: dict[str, Any] = {
            "method": self.config.method,
            "loss": self.config.loss,
            "sparsity": self.sparsity,
            "weights": self.weights,
            "nonzeros": self.nonzeros,
            "samples": self.samples,
            "sample_gradients": self.sample_gradients,
            "training_steps": self.training_steps,
            "trained_on": self.trained_on,
            "gains": None if self.gains is None else asdict(self.gains),
            "held_out_loss": self.held_out_loss,
            "held_out_error": self.held_out_error,
            "objective": self.objective,
            "pattern": self.config.pattern,
            "groups": {str(kept): many for kept, many in groups.items()} or None,
            "ridge": None if self.last is None else self.last.ridge,
            "seconds": asdict(self.seconds),
            "peak_memory_bytes": self.peak_memory_bytes,
            "seed": self.config.seed,
            "counts": self.counts.to_dict(),
            "layers": [row.to_dict() for row in self.layers],
            "stages": [row.to_dict() for row in self.stages],
            "repairs": [row.to_dict() for row in self.repairs],
        }
        return dict(json_safe(record))

    def __str__(self) -> str:
        return as_text(layer_table(self)) + as_text(counts_table(self.counts))

    def _repr_html_(self) -> str:
        return as_html(layer_table(self), counts_table(self.counts))


def layer_rows(weights: Weights) -> list[LayerRow]:
    """Return a row for each prunable parameter of a model."""
    return [
        LayerRow(
            weight.name,
            tuple(weight.parameter.shape),
            weight.parameter.numel(),
            int(torch.count_nonzero(weight.parameter)),
        )
        for weight in weights
    ]
