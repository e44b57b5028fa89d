"""Callbacks for the Hugging Face Trainer that prune or keep masks (extra `transformers`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chita.errors import ChitaError
from chita.gradual.pruner import GradualPruner
from chita.gradual.schedules import PruningSchedule, Unit, check_unit
from chita.model.keep_masks import innermost, keep_masks

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
except ImportError as error:
    raise ChitaError(
        "chita.gradual.huggingface needs transformers: pip install 'chita[transformers]'"
    ) from error

STATE_FILE = "gradual_pruner.pt"  # in each checkpoint of the Trainer


class GradualPruningCallback(TrainerCallback):
    """Prune a model while the Trainer trains it.

    Each checkpoint of the Trainer contains the pruner's state, from which
    `train(resume_from_checkpoint=...)` continues.

    Args:
        schedule: the pruning steps.
        batches: calibration data, dicts with labels. Do not pass the Trainer's own loader, which is
            in use when a pruning step happens.
        unit: the unit of time of the schedule, epochs or optimizer steps.
        arguments: arguments of `GradualPruner`, such as method, samples and exclude.

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

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        if hasattr(self, "pruner"):
            self.pruner.release()  # of a training that an error ended
        model, optimizer = others["model"], innermost(others["optimizer"])
        # Each rank of the Trainer has batch norm statistics of its own.
        arguments = {"sync": True, **self._arguments}
        self.pruner = GradualPruner(model, optimizer, self._schedule, **arguments)
        if state.global_step:
            file = _state_file(args, state)
            if not file.exists():
                raise ChitaError(
                    f"cannot resume at step {state.global_step}: {file} does not exist; resume "
                    "from a checkpoint in output_dir that was written with this callback"
                )
            self.pruner.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        if self._unit == "epoch":
            self.pruner.begin_epoch(int(state.epoch or 0), self._batches)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        if self._unit == "step":
            self.pruner.begin_epoch(state.global_step, self._batches)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        if state.is_world_process_zero:
            torch.save(self.pruner.state_dict(), _state_file(args, state))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        self.pruner.finalize()


class KeepMasksCallback(TrainerCallback):
    """Keep the pruned weights of a model at zero while the Trainer trains it.

    Args:
        masks: as in `chita.keep_masks`. By default weights that are zero when the training starts,
            or continues from a checkpoint, stay zero.
    """

    def __init__(self, masks: Mapping[str, Tensor] | None = None) -> None:
        self._masks, self._context = masks, ExitStack()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        self._context.close()  # of a training that an error ended
        self._context.enter_context(
            keep_masks(others["model"], others["optimizer"], masks=self._masks)
        )

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        self._context.close()


def _state_file(args: TrainingArguments, state: TrainerState) -> Path:
    folder = f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
    return Path(str(args.output_dir)) / folder / STATE_FILE
