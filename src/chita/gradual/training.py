"""The epochs of a training that ends with a sparse network."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chita.data.dataset import Batches, Images, Splits
from chita.errors import ChitaError
from chita.gradual.epoch_batches import Feed
from chita.gradual.epoch_file import EpochFile, FinishedEpochs
from chita.gradual.history import EpochRow, History
from chita.gradual.objective import Objective, cross_entropy, distillation
from chita.gradual.recipe import GradualRecipe
from chita.gradual.registry import get_method, make_sparsifier
from chita.gradual.schedules import cosine_restarts, one_shot
from chita.gradual.sparsifier import Sparsifier, TrainingPlan
from chita.gradual.step import Step
from chita.model.accuracy import accuracy
from chita.model.convolutions import convolution_trials
from chita.model.forward import device_of
from chita.model.samples.fingerprint import fingerprint
from chita.model.seeds import drawing, seed_of
from chita.model.training_step import Pass, average, average_gradients, fastest
from chita.model.weights import Patterns
from chita.solver.ranks import Ranks
from chita.zoo.training import initialise

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

TEST_BATCH = 1000  # images at most; the size affects only speed and memory


class Training:
    """The state that the epochs of one call of `train_sparse` share."""

    def __init__(
        self,
        model: nn.Module,
        data: Splits,
        recipe: GradualRecipe,
        *,
        method: str,
        sparsity: float,
        seed: int,
        include: Patterns,
        ranks: Ranks,
    ) -> None:
        self.model, self.data, self.recipe, self.ranks = model, data, recipe, ranks
        self.method, self.sparsity, self.seed, self.include = method, sparsity, seed, include
        self.place = device_of(model)
        self.schedule = recipe.schedule(sparsity)
        self.from_scratch = get_method(method).from_scratch
        self.feed = Feed(
            data.train,
            recipe.batch_size,
            augment=recipe.augmentation(),
            seed=seed,
            device=self.place,
            ranks=ranks,
        )
        self.objective = self.make_objective()
        self.teacher = fingerprint(model.state_dict().items()) if recipe.distill else None
        if self.from_scratch:
            initialise(model, torch.Generator(self.place).manual_seed(seed))
        self.test = Batches(data.test, min(TEST_BATCH, 4 * recipe.batch_size), device=self.place)
        self.optimizer = self.make_optimizer()
        self.sparsifier = self.make_sparsifier()
        for group in self.sparsifier.groups():
            self.optimizer.add_param_group(group)
        groups = self.optimizer.param_groups
        self.parameters: list[nn.Parameter] = [p for group in groups for p in group["params"]]
        # A group with its own learning rate keeps its ratio to the others.
        self.ratios = [group["lr"] / recipe.learning_rate for group in groups]
        self.step = Step(
            model,
            self.sparsifier,
            parameters=self.parameters,
            data=data.train,
            objective=self.objective,
        )
        self.fast_step: Pass | None = None  # created with the first batch
        self.rows: list[EpochRow] = []
        self.epoch_file: EpochFile | None = None

    def make_objective(self) -> Objective:
        if not self.recipe.distill:
            return cross_entropy(self.recipe.label_smoothing)
        example, _ = next(iter(self.feed.calibration(0)))
        return distillation(self.model, example)

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            self.model.parameters(),
            lr=self.recipe.learning_rate,
            momentum=self.recipe.momentum,
            weight_decay=self.recipe.weight_decay,
            fused=self.place.type == "cuda",
        )

    def make_sparsifier(self) -> Sparsifier:
        plan = TrainingPlan(
            self.sparsity, self.recipe.epochs, len(self.feed), self.schedule, self.seed
        )
        return make_sparsifier(
            self.method,
            self.model,
            self.optimizer,
            plan,
            include=self.include,
            **self.recipe.methods.get(self.method, {}),
        )

    def describe(self) -> dict[str, Any]:
        """Return everything that determines the outcome."""
        start = fingerprint(self.model.state_dict().items())
        return {
            **asdict(self.recipe),
            "methods": self.recipe.methods.get(self.method, {}),
            "method": self.method,
            "sparsity": self.sparsity,
            "seed": self.seed,
            "include": self.include,
            "device": self.place.type,
            "ranks": self.ranks.size,
            "the fingerprint of the model at the start": start,
            "the fingerprint of the teacher": self.teacher,
            "the fingerprint of the training images": _describe(self.data.train),
            "the fingerprint of the test images": _describe(self.data.test),
        }

    def keep_epochs(self, folder: Path, *, resume: bool) -> None:
        """Store each finished epoch in `folder`, and continue from one that is stored there."""
        epoch_file = EpochFile(folder, run=self.describe(), epochs=self.recipe.epochs)
        finished = self.ranks.from_first(lambda: epoch_file.begin(resume=resume))
        self.epoch_file = epoch_file if self.ranks.rank == 0 else None
        if finished is not None:
            self.rows = finished.rows
            self.model.load_state_dict(finished.model)
            self.optimizer.load_state_dict(finished.optimizer)
            self.sparsifier.load_state_dict(finished.sparsifier)

    def all_epochs(self, progress: Progress | None) -> History:
        """Run the remaining epochs and finalize the sparse network."""
        while len(self.rows) < self.recipe.epochs:
            self.next_epoch(progress)
        self.sparsifier.finalize()
        vector = self.sparsifier.weights.vector()
        return History(
            rows=tuple(self.rows),
            accuracy=self.ranks.from_first(lambda: accuracy(self.model, self.test)),
            weights=len(vector),
            nonzeros=int(vector.count_nonzero()),
        )

    def next_epoch(self, progress: Progress | None) -> None:
        """Run the next epoch and store it."""
        epoch = len(self.rows)
        with drawing(seed_of(self.seed, epoch, self.ranks.rank), self.place):
            self.rows.append(self.epoch(epoch, progress))
        logger.info("%s", self.rows[-1])
        if self.epoch_file is not None:
            self.epoch_file.write(self.finished())

    def epoch(self, epoch: int, progress: Progress | None) -> EpochRow:
        """Prune if a step is due, train one epoch and evaluate."""
        began = time.perf_counter()
        self.sparsifier.begin_epoch(epoch, self.feed.calibration(epoch))
        with convolution_trials(True):
            loss = self.train(epoch, progress)
        vector = self.effective_vector()
        return EpochRow(
            epoch=epoch + 1,
            pruned=not self.from_scratch and epoch in self.schedule.epochs,
            sparsity=1 - int(vector.count_nonzero()) / len(vector),
            learning_rate=self.learning_rate(epoch),
            last_learning_rate=self.learning_rate(epoch + 1 - 1 / len(self.feed)),
            loss=loss,
            accuracy=self.ranks.from_first(lambda: self.accuracy(vector)),
            seconds=time.perf_counter() - began,
        )

    def train(self, epoch: int, progress: Progress | None) -> float:
        """Train on all images once and return the mean loss of the steps."""
        self.model.train()
        total = torch.zeros((), device=self.place)
        steps = len(self.feed)
        for number, (images, labels) in enumerate(self.feed.epoch(epoch)):
            self.set_rate(epoch + number / steps)
            self.fast_step = self.fast_step or fastest(self.step, images, labels)
            total += self.fast_step(images, labels)
            average_gradients(self.ranks, self.parameters)
            self.optimizer.step()
            self.sparsifier.after_step()
            if progress is not None:
                progress(epoch * steps + number + 1, self.recipe.epochs * steps)
        average(self.ranks, [b for b in self.model.buffers() if b.is_floating_point()])
        loss = float(self.ranks.sum(total)) / (steps * self.ranks.size)
        if not math.isfinite(loss):
            raise ChitaError(
                f"training diverged in epoch {epoch + 1}: the loss is {loss}; try a learning_rate "
                f"below {self.recipe.learning_rate}"
            )
        return loss

    def learning_rate(self, epoch: float) -> float:
        """Return the rate on a cosine that restarts at each pruning step, or falls to 0 once."""
        highest, epochs = self.recipe.learning_rate, self.recipe.epochs
        if self.from_scratch:
            return cosine_restarts(epoch, one_shot(0.0), epochs, highest=highest, lowest=0.0)
        lowest = self.recipe.final_learning_rate
        return cosine_restarts(epoch, self.schedule, epochs, highest=highest, lowest=lowest)

    def set_rate(self, epoch: float) -> None:
        rate = self.learning_rate(epoch)
        for group, ratio in zip(self.optimizer.param_groups, self.ratios, strict=True):
            group["lr"] = ratio * rate

    @torch.no_grad()
    def effective_vector(self) -> Tensor:
        """Return the prunable weights of the forward pass, (p,)."""
        effective = self.sparsifier.effective()
        weights = self.sparsifier.weights
        return torch.cat([effective.get(w.name, w.parameter).flatten() for w in weights])

    def accuracy(self, vector: Tensor) -> float:
        with self.sparsifier.weights.temporarily(vector):
            return accuracy(self.model, self.test)

    def finished(self) -> FinishedEpochs:
        return FinishedEpochs(
            rows=self.rows,
            model=self.model.state_dict(),
            optimizer=self.optimizer.state_dict(),
            sparsifier=self.sparsifier.state_dict(),
        )


def _describe(data: Images) -> list[Any]:
    """Return the number of images and their fingerprint."""
    return [len(data), data.fingerprint()]
