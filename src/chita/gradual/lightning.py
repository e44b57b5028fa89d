"""Callbacks for the Lightning Trainer that prune or keep masks (extra `lightning`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from torch import Tensor

from chita.errors import ChitaError
from chita.gradual.pruner import GradualPruner
from chita.gradual.schedules import PruningSchedule, Unit, check_unit
from chita.model.keep_masks import keep_masks

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ChitaError(
        "chita.gradual.lightning needs lightning: pip install 'chita[lightning]'"
    ) from error


class GradualPruning(Callback):
    """Prune a LightningModule while a Trainer fits it.

    The gradients are those of loss(module(inputs), targets), computed with `forward` and not with
    `training_step`. The Trainer's checkpoints contain the pruner's state, from which
    `fit(ckpt_path=...)` continues.

    Args:
        schedule: the pruning steps.
        batches: calibration data, as in `chita.prune`. Do not pass the Trainer's own loader, which
            may be in use when a pruning step happens.
        unit: the unit of time of the schedule, epochs or optimizer steps.
        arguments: arguments of `GradualPruner`, such as method, loss, samples and exclude.

    Attributes:
        pruner: the GradualPruner, once training has started.
    """

    pruner: GradualPruner

    def __init__(
        self,
        schedule: PruningSchedule,
        batches: Iterable[Any],
        *,
        unit: Unit = "epoch",
        **arguments: Any,
    ) -> None:
        self._schedule, self._batches, self._arguments = schedule, batches, arguments
        self._unit = check_unit(unit)
        self._state: dict[str, Any] = {}  # from a checkpoint, read before the optimizer exists

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if len(trainer.optimizers) != 1:
            raise ChitaError(
                f"gradual pruning needs one optimizer, but the module has {len(trainer.optimizers)}"
            )
        (optimizer,) = trainer.optimizers
        # Each rank of the Trainer has batch norm statistics of its own.
        arguments = {"sync": True, **self._arguments}
        self.pruner = GradualPruner(pl_module, optimizer, self._schedule, **arguments)
        if self._state:
            self.pruner.load_state_dict(self._state)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._unit == "epoch":
            self.pruner.begin_epoch(trainer.current_epoch, self._batches)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._unit == "step":
            self.pruner.begin_epoch(trainer.global_step, self._batches)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.pruner.finalize()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        if hasattr(self, "pruner"):
            self.pruner.release()

    def state_dict(self) -> dict[str, Any]:
        return self.pruner.state_dict() if hasattr(self, "pruner") else self._state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._state = state_dict


class KeepMasks(Callback):
    """Keep the pruned weights of a LightningModule at zero while a Trainer fits it.

    Args:
        masks: as in `chita.keep_masks`, with the names of the LightningModule. By default weights
            that are zero when the training starts, or continues from a checkpoint, stay zero.
    """

    def __init__(self, masks: Mapping[str, Tensor] | None = None) -> None:
        self._masks, self._context = masks, ExitStack()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._context.enter_context(keep_masks(pl_module, *trainer.optimizers, masks=self._masks))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._context.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self._context.close()
