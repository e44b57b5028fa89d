"""GradualPruner: pruning steps inside any training loop (section 4.2)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from chita.errors import ChitaError
from chita.gradual.mask import Mask
from chita.gradual.schedules import PruningSchedule, check_sparsities
from chita.gradual.sparsifier import Sparsifier
from chita.model.checks import check_model
from chita.model.forward import unwrapped
from chita.model.losses import Loss
from chita.model.masks import apply_masks
from chita.model.named_losses import resolve_loss
from chita.model.samples.fingerprint import fingerprint
from chita.pruning.config import PruneConfig
from chita.pruning.options.declaration import check_names, options_of
from chita.pruning.prune import prune
from chita.pruning.result import PruneResult
from chita.pruning.supports import choose_weights
from chita.solver.ranks import joined_ranks

logger = logging.getLogger(__name__)

# Options of chita.prune that the schedule decides, and floors, which search for a sparsity.
SCHEDULED = (
    *("sparsity", "method", "stages", "schedule", "start", "hold"),
    *("max_loss_increase", "min_accuracy"),
)
SETTINGS = [name for name in options_of(PruneConfig) if name not in SCHEDULED]


class GradualPruner(Sparsifier):
    """Prune a model step by step while a training loop trains it.

    Between two pruning steps a hook on the optimizer keeps the pruned weights at zero. Modules are
    not wrapped and keys are not renamed. In a process group of torch.distributed, all ranks must
    prune at the same time; they get the same masks.

    Args:
        model: the model, plain or wrapped by DistributedDataParallel or torch.compile.
        optimizer: the optimizer of the model.
        schedule: the pruning steps, or only their sparsities, one for each call of `step`.
        method: a method of `chita.prune`.
        loss: a name such as "mse", a loss of torch.nn or a function, as for `chita.prune`; the
            cross-entropy by default.
        stages: the stages of each pruning step, from the previous sparsity to its own. More than
            one recomputes the gradients at each stage, as in CHITA++.
        arguments: other options of `chita.prune`, such as samples, batch, ridge, block_size,
            first_order, include, exclude and seed. Each pruning step increases the seed by 1.
            For a model in DistributedDataParallel, `sync` is True by default: as in its forward
            pass, the buffers of rank 0 count.

    Attributes:
        sparsities: the sparsities of all pruning steps.
        steps_done: the number of finished pruning steps.

    Raises:
        ChitaError: an argument is invalid.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        schedule: PruningSchedule | Sequence[float],
        method: str = "chita-bso",
        *,
        loss: Loss | str | None = None,
        stages: int = 1,
        **arguments: Any,
    ) -> None:
        self._epochs: tuple[int, ...] | None = None
        if isinstance(schedule, PruningSchedule):
            self._epochs, schedule = schedule.epochs, schedule.sparsities
        self.sparsities = check_sparsities(schedule)
        self.steps_done = 0
        for name in arguments:
            if name in SCHEDULED:
                raise ChitaError(
                    f"{name} cannot be set here, since the schedule decides the sparsity of each "
                    f"step; the options are {SETTINGS}"
                )
        check_names(arguments, SETTINGS, "GradualPruner")
        synced = isinstance(model, DistributedDataParallel)
        arguments = {"sync": synced, **arguments, "method": method, "stages": stages}
        config = PruneConfig(sparsity=self.sparsities[-1], **arguments)
        resolve_loss(loss)  # a wrong name is an error now, not at the first step
        self._loss, self._arguments = loss, {**arguments, "seed": config.seed}
        self._model = unwrapped(model)
        check_model(self._model)
        self.weights = choose_weights(self._model, config)
        self._check_optimizer(optimizer)
        self._mask = Mask(self.weights, optimizer)

    @property
    def masks(self) -> dict[str, Tensor]:
        """The masks by parameter name; True marks a kept weight."""
        return {n: mask.clone() for n, mask in self.weights.split(self._mask.kept).items()}

    def begin_epoch(self, epoch: int, batches: Iterable[Any]) -> None:
        """Run the pruning steps that are due before `epoch`.

        Args:
            epoch: 0, 1, ...; or the number of optimizer steps, if the schedule counts those.
            batches: calibration data for `step`.
        """
        if self._epochs is None:
            raise ChitaError(
                "schedule has sparsities but no epochs: call step(batches), or pass a "
                "PruningSchedule"
            )
        if not isinstance(epoch, Integral):
            raise ChitaError(f"epoch must be an integer, got {epoch!r}")
        for due in self._epochs[self.steps_done :]:
            if due <= epoch:
                self.step(batches)

    def step(self, batches: Iterable[Any]) -> PruneResult:
        """Run the next pruning step: prune to the next sparsity and update the mask.

        The training mode, the gradients and the batch norm statistics do not change.

        Args:
            batches: calibration data, as in `chita.prune`.
        """
        if self.steps_done == len(self.sparsities):
            raise ChitaError(f"all {self.steps_done} pruning steps of the schedule are done")
        seed = self._arguments["seed"] + self.steps_done
        before, sparsity = (0.0, *self.sparsities)[self.steps_done : self.steps_done + 2]
        result = prune(
            self._model,
            batches,
            sparsity=sparsity,
            loss=self._loss,
            start=before,
            progress=False,
            **{**self._arguments, "seed": seed},
        )
        # A weight that no gradient reaches is not pruned in this step and keeps its mask.
        self._mask.kept = self._flat({**self.masks, **result.masks})
        self.steps_done += 1
        self._check_ranks()
        return result

    def apply_to(self, model: nn.Module) -> None:
        """Set the pruned weights to zero in a copy of the model, such as a weight average."""
        apply_masks(model, self.masks)

    def finalize(self) -> None:
        """Apply the mask a last time and remove the optimizer hook."""
        if left := len(self.sparsities) - self.steps_done:
            logger.warning("%d pruning steps of the schedule were not run", left)
        self._mask.apply()
        self.release()

    def release(self) -> None:
        """Remove the optimizer hook: the mask is no longer applied."""
        self._mask.release()

    def state_dict(self) -> dict[str, Any]:
        return {
            "sparsities": list(self.sparsities),
            "epochs": None if self._epochs is None else list(self._epochs),
            "steps_done": self.steps_done,
            "masks": self.masks,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        own = self.state_dict()
        if not isinstance(state, Mapping) or not own.keys() <= state.keys():
            raise ChitaError(
                f"state must come from GradualPruner.state_dict(), with {list(own)}, got "
                + (f"a dict with {list(state)}" if isinstance(state, Mapping) else repr(state))
            )
        for key in ("sparsities", "epochs"):
            if state[key] != own[key]:
                raise ChitaError(
                    f"the state belongs to a schedule with {key}={state[key]}, but this schedule "
                    f"has {key}={own[key]}"
                )
        shapes, expected = (
            {name: tuple(mask.shape) for name, mask in masks.items()}
            for masks in (state["masks"], own["masks"])
        )
        if shapes != expected:
            raise ChitaError(
                f"the state has masks for {shapes}, but the prunable weights are {expected}"
            )
        done = state["steps_done"]
        if not isinstance(done, int) or not 0 <= done <= len(self.sparsities):
            raise ChitaError(
                f"the state has steps_done={done!r}, which must be an integer from 0 to "
                f"{len(self.sparsities)}"
            )
        for name, mask in state["masks"].items():
            if not bool(((mask == 0) | (mask == 1)).all()):
                raise ChitaError(
                    f"the state has a mask of {name!r} with other values than 0 and 1: "
                    f"{mask[(mask != 0) & (mask != 1)][:3].tolist()}"
                )
        self.steps_done = done
        self._mask.kept = self._flat(state["masks"])

    def _flat(self, masks: dict[str, Tensor]) -> Tensor:
        """Concatenate masks to a (p,) bool vector."""
        return torch.cat([masks[weight.name].flatten() for weight in self.weights])

    def _check_optimizer(self, optimizer: Optimizer) -> None:
        """Check that the optimizer holds all prunable weights, since others would not stay zero."""
        if not hasattr(optimizer, "register_step_post_hook"):
            raise ChitaError(
                "optimizer must be the torch.optim.Optimizer of the model, got "
                f"{type(optimizer).__name__}"
            )
        stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for weight in self.weights:
            if weight.parameter.requires_grad and id(weight.parameter) not in stepped:
                raise ChitaError(
                    f"the optimizer does not contain the prunable weight {weight.name!r}: pass the "
                    f"optimizer that does, or exclude={weight.name!r}"
                )

    def _check_ranks(self) -> None:
        """Check that all ranks pruned the same weights; other data may lead to other masks."""
        with joined_ranks() as ranks:
            if ranks.size == 1:
                return
            own = fingerprint([("weights", self.weights.vector()), ("kept", self._mask.kept)])
            if not ranks.all(own == ranks.from_first(lambda: own)):
                raise ChitaError(
                    "the ranks have pruned different weights: pass the same batches on every rank"
                )
