"""Training in CUDA graphs: the same result, one graph for all trainings, one try."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from chita.model.weights import Weights
from chita.pruning.recovery import training as training_module
from chita.pruning.recovery.objective import RecoveryTask
from chita.pruning.recovery.training import RecoveryTraining
from tests.support.pruning import points, snapshot, tiny
from tests.support.recovering import halved, kept_of, task_of

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def trainer(pruned: Any, task: RecoveryTask) -> RecoveryTraining:
    parameters = [weight.parameter for weight in Weights(pruned)]
    return RecoveryTraining(pruned, parameters, task)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_graph_trains_as_separate_steps_do_again_and_again(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    for captures in (True, False):
        with monkeypatch.context() as patched:
            if not captures:
                patched.setattr(training_module, "fastest", lambda step, *_: step)
            model: Any = tiny().to("cuda", dtype)
            pruned = halved(model)
            training = trainer(pruned, task_of(model, points(64)[0].to("cuda", dtype)))
            for key in range(3):
                training.train(kept_of(pruned), steps=4, rate=0.01, key=key)
        assert (training._captured is not None) == captures
        ends.append(snapshot(pruned))
    close = (
        {"rtol": 0.02, "atol": 0.02} if dtype == torch.bfloat16 else {"rtol": 1e-3, "atol": 1e-4}
    )
    for name, found in ends[0].items():
        torch.testing.assert_close(found, ends[1][name], **close)


def test_a_capture_that_failed_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the size of the batches changes."""
    tried: list[int] = []

    def failing(step: Any, *batch: Tensor) -> Any:
        tried.append(len(batch[0]))
        return step

    monkeypatch.setattr(training_module, "fastest", failing)
    model: Any = tiny()
    pruned = halved(model)
    training = trainer(pruned, task_of(model))
    for batch in (None, 16):
        if batch is not None:
            training.use_batch(batch)
        for key in range(3):
            training.train(kept_of(pruned), steps=2, rate=0.01, key=key)
    assert len(tried) == 2 and tried[1] == 16
