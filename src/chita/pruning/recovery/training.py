"""Train a pruned network on calibration samples for some steps, with its masks held."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from chita.model.forward import device_of, evaluating
from chita.model.layers import batch_norm_layers
from chita.model.samples.batch import Batch, tensors_of
from chita.model.seeds import drawing, generator_of, seed_of
from chita.model.training_step import Pass, average, average_gradients, fastest
from chita.pruning.recovery.objective import RecoveryTask
from chita.pruning.recovery.step import RecoveryStep
from chita.pruning.recovery.updates import (
    Masks,
    RelativeAdam,
    Scales,
    rate_at,
    relative_scales,
)
from chita.solver.ranks import ALONE, Ranks

LAST = 0.25  # the share of the steps, at the end, whose mean loss is returned

Progress = Callable[[], None]  # called after each step


class RecoveryTraining:
    """Training of all parameters of a pruned network except its pruned weights.

    Batch norm runs in training mode, which is worth most of the gain. All other layers, such as
    dropout, run in evaluation mode.

    Args:
        model: the pruned model.
        pruned: the parameters that masks apply to; they are trained even if they are frozen.
        task: the samples and their loss.
        ranks: the ranks that share each batch.
        seed: the seed of the order of the samples.

    Attributes:
        task: the name of the task.
        parameters: the parameters that are trained.
        step_seconds: the time that a step took on average, with its share of the new inputs; 0
            before the first one.
    """

    def __init__(
        self,
        model: nn.Module,
        pruned: Sequence[nn.Parameter],
        task: RecoveryTask,
        *,
        ranks: Ranks = ALONE,
        seed: int = 0,
    ) -> None:
        self._model, self._task, self.task = model, task, task.name
        self._ranks, self._seed = ranks, seed
        trainable = [p for p in model.parameters() if p.requires_grad and p.is_floating_point()]
        self.parameters = list(dict.fromkeys([*trainable, *pruned]))
        self.step_seconds = 0.0
        self._batch_norm = batch_norm_layers(model)
        self._captured: tuple[Pass, RelativeAdam] | None = None  # a CUDA graph and its updates
        self._capture_failed = False

    def train(
        self,
        masks: Masks,
        *,
        steps: int,
        rate: float,
        key: int,
        progress: Progress | None = None,
    ) -> float:
        """Train for some steps, and return the mean loss of the last of them.

        Args:
            masks: the kept weights of each pruned parameter, True where a weight is kept.
            steps: the number of steps, at least 1.
            rate: the highest relative rate (`updates.py`).
            key: together with the seed, it determines the order of the samples.
            progress: called after each step.
        """
        place = device_of(self._model)
        batches = self._task.draw(generator_of(self._seed, key), self._ranks, steps)
        counted = max(1, int(LAST * steps))
        began = drawn = _now(place)
        with self._training(), drawing(seed_of(self._seed, key, self._ranks.rank), place):
            scales = relative_scales(self._model, self.parameters, masks)
            total = torch.zeros((), device=place)
            for number, batch in enumerate(batches):
                self._set_batch_norm(batch.size)
                if number == 0:
                    drawn = _now(place)
                    step, updates = self._begin(batch, scales)
                updates.begin_step(rate * rate_at(number, steps))
                loss = step(*tensors_of(batch.content))
                if self._ranks.size > 1:
                    average_gradients(self._ranks, self.parameters)
                    updates.apply()
                if number >= steps - counted:
                    total += loss
                if number == 0:  # which includes the capture of a CUDA graph
                    began = _now(place) - (drawn - began) * (1 - 1 / self._task.ahead(steps))
                if progress is not None:
                    progress()
            if steps > 1:
                self.step_seconds = (_now(place) - began) / (steps - 1)
        average(self._ranks, [b for b in self._model.buffers() if b.is_floating_point()])
        return float(self._ranks.sum(total)) / (counted * self._ranks.size)

    def use_batch(self, batch: int) -> None:
        """Train on smaller batches from now on."""
        self._task.pool.batch = batch
        self.release()  # a CUDA graph has the shapes of the batches before

    def release(self) -> None:
        """Free the memory of the CUDA graph; a later training captures another one."""
        self._captured, self._capture_failed = None, False

    def _begin(self, batch: Batch, scales: Scales) -> tuple[Pass, RelativeAdam]:
        """Return the step of a training that starts with this batch, and the updates in it."""
        if self._captured is not None:
            step, updates = self._captured
        else:
            updates = RelativeAdam(scales)
            made = RecoveryStep(
                self._model,
                self.parameters,
                self._task.objective,
                batch,
                updates if self._ranks.size == 1 else None,
            )
            graph = self._task.pool.uniform and not self._capture_failed
            step = fastest(made, *tensors_of(batch.content)) if graph else made
            self._capture_failed = step is made
            if step is not made:
                self._captured = step, updates
        updates.restart(scales)  # the steps before a capture have changed the state
        return step, updates

    def _set_batch_norm(self, samples: int) -> None:
        """Let batch norm run in training mode, except on one sample, which has no statistics."""
        if self._batch_norm and self._batch_norm[0].training != (samples > 1):
            for layer in self._batch_norm:
                layer.train(samples > 1)

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Let gradients reach all parameters; restore the model's modes and flags at the end."""
        flags = [(parameter, parameter.requires_grad) for parameter in self.parameters]
        with (
            evaluating(self._model),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            try:
                for parameter in self.parameters:
                    parameter.requires_grad_(True)
                yield
            finally:
                for parameter, flag in flags:
                    parameter.requires_grad_(flag)
                    parameter.grad = None


def _now(place: torch.device) -> float:
    """Return the time after all work so far, also that of a GPU."""
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    return time.perf_counter()
