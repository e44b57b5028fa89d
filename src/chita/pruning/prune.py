"""chita.prune: one-shot pruning in one stage (CHITA) or many (CHITA++, algorithm 1)."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from chita.errors import ChitaError, require_bools
from chita.files.atomic import as_path
from chita.files.run_folder import writing_to
from chita.model.checks import check_model
from chita.model.convolutions import convolution_trials
from chita.model.distill import default_loss
from chita.model.freed_memory import freed_memory_reused
from chita.model.named_losses import resolve_loss
from chita.model.ties import merged_ties
from chita.pruning.config import PruneConfig, resolve_config
from chita.pruning.default_method import config_for
from chita.pruning.forecast import Forecast
from chita.pruning.options.declaration import add_options
from chita.pruning.result import PruneResult
from chita.pruning.run import Run
from chita.pruning.setup import Setup
from chita.report.progress import run_bar
from chita.solver.precision import own_precision
from chita.solver.ranks import joined_ranks


def prune(
    model: nn.Module,
    batches: Any,
    config: PruneConfig | None = None,
    *,
    inplace: bool = True,
    progress: bool = True,
    checkpoints: str | Path | None = None,
    resume: bool = False,
    held_out: Any = None,
    **overrides: Any,
) -> PruneResult:
    """Set a share of a model's weights to zero and adjust the others to preserve its loss.

    The default call trains: after each stage, it trains the remaining weights for some steps to
    give the outputs of the dense model on the calibration inputs, or on labels where these teach
    more. recover=False prunes without training, as the paper defines it.

    Give the options as keywords, as a `PruneConfig`, or both: keywords override the configuration.

    The model changes only after a stage succeeds: an error or an interruption leaves it with the
    weights of the last finished stage. In a process group of torch.distributed, all ranks must call
    this function with the same model and data. They share the work, and all return the result.

    The method "auto", which is the default, may also change biases and the statistics of batch norm
    at the end, if that lowers the held-out loss; `PruneResult.repairs` lists these changes. With
    `recover`, all parameters that require gradients and the statistics of batch norm are trained.
    Other methods without `recover` change only the prunable weights.

    Args:
        model: A trained module. Pruning runs on its device.
        batches: Calibration data: a list or a DataLoader of (inputs, targets), or of dicts, for
            which the model's own `.loss` is used. Also arrays (X, y), a Dataset, a list of samples
            (x, y), lists of token ids, inputs alone, for which the default loss is "distill", or a
            function that starts a pass, such as lambda: generate(). Inputs that are a dict are
            passed to the model as keywords.
        config: Values of the options; the defaults if None.
        inplace: Prune the model itself instead of a copy.
        progress: Show a progress bar.
        checkpoints: Folder to which the last finished stage is written after every stage.
        resume: Continue after the stage found in `checkpoints`, if there is one. The arguments and
            the initial model must be the same. On a CPU the result is then bit-identical to that of
            an uninterrupted run, unless the data come in another order, as from a DataLoader that
            shuffles.
        held_out: Samples to choose by and to measure on, in the form of `batches`; they never enter
            A. By default a part of `batches` is held out. The content of a sample decides whether
            it is, so that a loader may shuffle. Pass `held_out` if `batches` augments its samples
            at random, since every pass then has new samples; otherwise such samples are read once
            and stored.
        overrides: Options by name, listed below. `loss` may also be a module of torch.nn or a
            function loss(outputs, targets) -> scalar, and `sparsity` a pattern such as "2:4".

    Returns:
        The pruned model with its masks and a report on every stage and layer.

    Raises:
        ChitaError: An argument, the model or the data are invalid; the message names the cause.
    """
    began = time.perf_counter()
    require_bools(inplace=inplace, progress=progress, resume=resume)
    given = overrides.get("loss")
    function = resolve_loss(given) if callable(given) else None
    config = resolve_config(config, overrides if function is None else {**overrides, "loss": None})
    function = function or resolve_loss(config.loss)
    if resume and checkpoints is None:
        raise ChitaError("resume=True requires checkpoints, the folder of the run to continue")
    folder = None if checkpoints is None else as_path(checkpoints, "checkpoints")
    model = model if inplace else copy.deepcopy(model)
    reused = freed_memory_reused(config.memory is None)
    with joined_ranks() as ranks, convolution_trials(False), own_precision(), reused:
        check_model(model)
        config = config_for(model, config)
        if config.loss is None and function is None and config.reads_samples:
            config = replace(config, loss=default_loss(model, batches))
        show = progress and ranks.rank == 0
        with merged_ties(model), run_bar(show=show) as bar:
            setup = Setup(model, batches, function, config, ranks, held_out, Forecast(bar))
            run = Run(setup, began)
            with writing_to(folder if ranks.rank == 0 else None):
                if folder is not None:
                    run.keep_stages(folder, resume=resume)
                return run.all_stages()


prune.__doc__ = add_options(prune.__doc__, PruneConfig, "Keyword Args")
