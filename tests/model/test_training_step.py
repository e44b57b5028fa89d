"""One training step: its gradients, the CUDA graph that repeats it, and the mean over ranks."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from chita.model.training_step import CapturedStep, TrainingStep, average, fastest
from chita.solver.ranks import ALONE, joined_ranks
from tests.support.gloo import on_ranks
from tests.support.messages import says
from tests.support.pruning import same, seeded, snapshot

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Plain(TrainingStep):
    """The cross-entropy of a classifier."""

    def forward_backward(self, *batch: Tensor) -> Tensor:
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


class Waits(Plain):
    """Looks at the loss, for which the CPU must wait."""

    def forward_backward(self, *batch: Tensor) -> Tensor:
        loss = super().forward_backward(*batch)
        assert float(loss) >= 0
        return loss


class Litters(Plain):
    """Leaves another graph as garbage, and lets the collection run as soon as it can."""

    graph: Any = None

    def forward_backward(self, *batch: Tensor) -> Tensor:
        if torch.cuda.is_current_stream_capturing():
            garbage = [self.graph]
            garbage.append(garbage)
            self.graph = None
            del garbage
            gc.set_threshold(1)
            assert len([[number] for number in range(1000)]) == 1000
        return super().forward_backward(*batch)


def make(kind: type[Plain] = Plain, device: str = "cpu") -> Plain:
    model = seeded(
        lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    ).to(device)
    return kind(model, list(model.parameters()))


def batch(seed: int = 0, device: str = "cpu") -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(20, 6, generator=draw)
    return inputs.to(device), inputs[:, :3].argmax(1).to(device)


def gradients(step: TrainingStep) -> list[Tensor]:
    assert all(parameter.grad is not None for parameter in step.parameters)
    return [parameter.grad.clone() for parameter in step.parameters if parameter.grad is not None]


def test_a_step_replaces_the_gradients_of_the_last_one() -> None:
    step = make()
    loss = F.cross_entropy(step.model(batch()[0]), batch()[1])
    truth = torch.autograd.grad(loss, list(step.parameters))
    step(*batch(1))
    assert torch.equal(step(*batch()), loss.detach())
    for found, expected in zip(gradients(step), truth, strict=True):
        assert torch.equal(found, expected)
    step.forget_gradients()
    assert all(parameter.grad is None for parameter in step.parameters)


def test_on_a_cpu_the_step_is_run_as_it_is() -> None:
    step = make()
    before = snapshot(step.model)
    assert fastest(step, *batch()) is step
    assert same(snapshot(step.model), before)


@needs_gpu
def test_a_graph_gives_the_gradients_of_the_step() -> None:
    step = make(device="cuda")
    before = snapshot(step.model)
    graph = fastest(step, *batch(device="cuda"))
    assert isinstance(graph, CapturedStep)
    assert same(snapshot(step.model), before)
    for seed in range(3):  # the weights change in place between replays
        given = batch(seed, "cuda")
        loss = float(step(*given))
        truth = gradients(step)
        step.forget_gradients()
        assert float(graph(*given)) == pytest.approx(loss, rel=1e-4)
        for found, expected in zip(gradients(step), truth, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
        with torch.no_grad():
            for parameter in step.parameters:
                parameter.mul_(0.9)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_graph_is_captured_on_the_gpu_of_the_batch() -> None:
    step = make(device="cuda:1")
    graph = fastest(step, *batch(device="cuda:1"))
    assert isinstance(graph, CapturedStep)
    loss = float(step(*batch(device="cuda:1")))
    assert float(graph(*batch(device="cuda:1"))) == pytest.approx(loss, rel=1e-4)
    assert torch.cuda.current_device() == 0


@needs_gpu
def test_garbage_does_not_disturb_a_capture() -> None:
    thresholds, step = gc.get_threshold(), make(Litters, "cuda")
    step.graph = fastest(make(device="cuda"), *batch(device="cuda"))  # type: ignore[attr-defined]
    try:
        assert isinstance(fastest(step, *batch(device="cuda")), CapturedStep)
    finally:
        gc.set_threshold(*thresholds)
    assert gc.isenabled()


@needs_gpu
def test_a_step_that_waits_for_the_gpu_is_run_without_a_graph(
    caplog: pytest.LogCaptureFixture,
) -> None:
    step = make(Waits, "cuda")
    before = snapshot(step.model)
    assert fastest(step, *batch(device="cuda")) is step
    assert same(snapshot(step.model), before)
    assert says(caplog.text, "CUDA graph")
    assert step(*batch(device="cuda")).isfinite()
    assert torch.rand(2, device="cuda").isfinite().all()  # random numbers can be drawn as before


def test_one_rank_keeps_its_tensors() -> None:
    tensor = torch.arange(3.0)
    average(ALONE, [tensor])
    assert tensor.tolist() == [0, 1, 2]


def averaged(rank: int) -> Any:
    tensors = [torch.full((2, 3), float(rank)), torch.tensor(10.0 * rank, dtype=torch.float64)]
    with joined_ranks() as ranks:
        average(ranks, tensors)
        average(ranks, [])
    return tensors


@pytest.mark.slow
def test_ranks_get_the_mean_of_each_tensor() -> None:
    for first, second in on_ranks(2, averaged):
        assert torch.equal(first, torch.full((2, 3), 0.5))
        assert (second.dtype, float(second)) == (torch.float64, 5.0)
