"""The step of recovery: its gradients, the form of its batches, and its precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chita.model.fast_arithmetic import LEAST_CAST
from chita.model.samples.batch import Batch, tensors_of
from chita.pruning.recovery.step import RecoveryStep
from tests.support.pruning import numbers, points, seeded, tiny
from tests.support.recovering import Tokens, halved, padded, task_of

CAPABILITIES = getattr(torch.cpu, "get_capabilities", dict)()
HAS_BFLOAT16 = any(CAPABILITIES.get(name) for name in ("avx512_bf16", "amx_bf16"))


def step_of(model: nn.Module, objective: Any, example: Batch) -> RecoveryStep:
    return RecoveryStep(model, list(model.parameters()), objective, example)


def test_the_gradients_are_those_of_the_objective() -> None:
    model: Any = tiny()
    pruned, task = halved(model), task_of(model)
    batch = task.example
    loss = task.objective(pruned, batch)
    truth = torch.autograd.grad(loss, list(pruned.parameters()))
    step = step_of(pruned, task.objective, batch[:3])  # another number of samples
    assert torch.equal(step(*tensors_of(batch.content)), loss.detach())
    for parameter, expected in zip(pruned.parameters(), truth, strict=True):
        torch.testing.assert_close(parameter.grad, expected)


def test_a_batch_keeps_its_form() -> None:
    """Keywords, nested targets, and values that are not tensors."""
    model: Any = seeded(Tokens)
    keywords = padded(6)
    content: Any = (
        (keywords,),
        {"answer": torch.ones(6, 7), "name": "it", "more": [torch.ones(6)]},
    )
    seen: list[Batch] = []

    def objective(given: nn.Module, batch: Batch) -> Tensor:
        seen.append(batch)
        out: Tensor = batch.outputs(given).logits.sum()
        return out

    step_of(model, objective, Batch(content, 6))(*tensors_of(Batch(content, 6)[2:5].content))
    (batch,) = seen
    assert batch.size == 3
    assert isinstance(batch.content, tuple)
    (found,), targets = batch.content
    assert torch.equal(found["input_ids"], keywords["input_ids"][2:5])
    assert torch.equal(found["attention_mask"], keywords["attention_mask"][2:5])
    assert targets["name"] == "it"
    assert targets["more"][0].shape == (3,)


def test_images_have_their_channels_last_and_the_same_gradients() -> None:
    model: Any = seeded(lambda: nn.Conv2d(3, 4, 3)).double()
    images = numbers(5, 3, 8, 8)
    formats = []

    def objective(given: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(batch.content, tuple)
        formats.append(batch.content[0][0].is_contiguous(memory_format=torch.channels_last))
        out: Tensor = given(batch.content[0][0]).square().mean()
        return out

    (truth,) = torch.autograd.grad(model(images).square().mean(), [model.weight])
    batch = Batch(((images,), ()), 5)
    step_of(model, objective, batch)(*tensors_of(batch.content))
    assert formats == [True]
    torch.testing.assert_close(model.weight.grad, truth)


@pytest.mark.parametrize(
    ("width", "dtype", "casts"),
    [
        (LEAST_CAST // 6 + 1, torch.float32, HAS_BFLOAT16),
        (LEAST_CAST // 6 + 1, torch.float64, False),
        (LEAST_CAST // 6 + 1, torch.bfloat16, False),
        (10, torch.float32, False),
    ],
)
def test_only_large_float32_models_are_cast(width: int, dtype: torch.dtype, casts: bool) -> None:
    model: Any = seeded(lambda: nn.Linear(6, width)).to(dtype)
    inputs = points(4)[0].to(dtype)
    seen = []

    def objective(given: nn.Module, batch: Batch) -> Tensor:
        out: Tensor = given(inputs)
        seen.append(out.dtype)
        return out.float().mean()

    step_of(model, objective, Batch(((inputs,), ()), 4))(inputs)
    assert seen == [torch.bfloat16 if casts else dtype]
    assert model.weight.grad.dtype == dtype
