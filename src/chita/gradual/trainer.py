"""train_sparse: a complete training that ends with a sparse network."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from chita.data.dataset import Splits
from chita.errors import ChitaError
from chita.files.atomic import as_path
from chita.files.run_folder import writing_to
from chita.gradual.history import History
from chita.gradual.recipe import GradualRecipe
from chita.gradual.registry import get_method
from chita.gradual.training import Progress, Training
from chita.model.forward import modes_restored
from chita.model.freed_memory import freed_memory_reused
from chita.model.weights import Patterns
from chita.pruning.rank_agreement import agree_on_model
from chita.solver.ranks import joined_ranks


def train_sparse(
    model: nn.Module,
    data: Splits,
    recipe: GradualRecipe,
    *,
    method: str,
    sparsity: float,
    seed: int = 0,
    device: torch.device | str = "cpu",
    include: Patterns = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    sync: bool = False,
) -> History:
    """Train a model in place until it is sparse.

    In a process group of torch.distributed, all ranks must call this function with the same
    arguments; they share each batch. On a CPU, the same seed and the same number of threads give
    identical bits, also after a training was killed and resumed.

    Args:
        model: the trained model; a method that trains from scratch initialises it first. With
            `recipe.distill`, a copy of the model as given is the teacher.
        data: the training images, and the test images for the accuracy after each epoch.
        recipe: the training recipe.
        method: a name in `chita.gradual.registry.METHODS`, or "dense", with a sparsity of 0.
        sparsity: the share of the prunable weights that are zero at the end, in [0, 1).
        seed: the random seed.
        device: the device to train on.
        include: glob pattern(s) of the prunable parameters, as in `chita.prune`.
        out: a folder in which the last finished epoch is stored after each epoch.
        resume: continue after the epoch stored there, if any. The arguments and the initial model
            must be the same.
        progress: called after each step with the number of finished steps and of all steps.
        sync: on several ranks, take the parameters and buffers of rank 0. By default, ranks that
            differ in them raise an error.
    """
    if out is None and resume:
        raise ChitaError("resume=True needs out, the folder of the training to continue")
    model.to(device)
    with joined_ranks() as ranks, modes_restored(model), freed_memory_reused():
        if recipe.distill or not get_method(method).from_scratch:  # else the seed determines it
            agree_on_model(ranks, model, sync=sync)
        training = Training(
            model, data, recipe, method=method, sparsity=sparsity, seed=seed, include=include,
            ranks=ranks,
        )  # fmt: skip
        folder = None if out is None else as_path(out, "out")
        with writing_to(folder if ranks.rank == 0 else None):
            if folder is not None:
                training.keep_epochs(folder, resume=resume)
            return training.all_epochs(progress)
