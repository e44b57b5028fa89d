"""The forward and backward pass of one training step, on a GPU as one CUDA graph.

Launching the kernels of a small network one by one from Python takes longer than they run. A CUDA
graph launches all of them at once.
"""

from __future__ import annotations

import gc
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.forward import buffers_restored
from chita.solver.ranks import Ranks

logger = logging.getLogger(__name__)

WARM_UP = 3  # steps before a capture, in which libraries select kernels and allocate memory

Pass = Callable[..., Tensor]  # the tensors of a batch -> the loss


class TrainingStep(ABC):
    """The forward and backward pass of a batch; it leaves the gradients in the parameters.

    Args:
        model: the model that is trained.
        parameters: the parameters of the optimizer.
    """

    def __init__(self, model: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        self.model, self.parameters = model, parameters

    def __call__(self, *batch: Tensor) -> Tensor:
        """Compute the gradients of a batch and return its loss; discard earlier gradients."""
        self.forget_gradients()
        return self.forward_backward(*batch)

    def forget_gradients(self) -> None:
        """Remove all gradients, so that the next ones are allocated anew."""
        for parameter in self.parameters:
            parameter.grad = None

    @abstractmethod
    def forward_backward(self, *batch: Tensor) -> Tensor:
        """Accumulate gradients and return the loss.

        A synchronisation with the GPU would make a capture fail.
        """


class CapturedStep:
    """A `TrainingStep` captured as a CUDA graph, for batches of one shape.

    Args:
        step: the step to capture. It runs a few times before, and must not change the parameters
            then; buffers are restored.
        batch: the tensors of a batch with the shapes of all later batches. Their GPU must be the
            current device.
    """

    def __init__(self, step: TrainingStep, *batch: Tensor) -> None:
        self._step = step
        self._batch = [tensor.clone() for tensor in batch]
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), buffers_restored(step.model):
            for _ in range(WARM_UP):
                step(*self._batch)
        torch.cuda.current_stream().wait_stream(stream)
        step.forget_gradients()
        # Other threads, such as one that pins memory, may call CUDA meanwhile.
        with (
            _collection_paused(),
            torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"),
        ):
            self._loss = step.forward_backward(*self._batch)
        self._gradients = [parameter.grad for parameter in step.parameters]

    def __call__(self, *batch: Tensor) -> Tensor:
        """Run the graph, as `TrainingStep` does; the next call overwrites the returned loss."""
        for own, given in zip(self._batch, batch, strict=True):
            own.copy_(given)
        # Other code, such as a pruning step, may have replaced the gradients.
        for parameter, gradient in zip(self._step.parameters, self._gradients, strict=True):
            parameter.grad = gradient
        self._graph.replay()
        return self._loss


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Pause the garbage collection: it may free memory of a GPU, which makes a capture fail."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def fastest(step: TrainingStep, *batch: Tensor) -> Pass:
    """Return the step as a CUDA graph if the batch is on a GPU and a capture succeeds."""
    if not batch[0].is_cuda:
        return step
    with torch.cuda.device(batch[0].device):
        stream = torch.cuda.current_stream()
        random = torch.cuda.default_generators[torch.cuda.current_device()]
        spare = random.clone_state()
        try:
            return CapturedStep(step, *batch)
        except (RuntimeError, ChitaError) as error:  # a misfit of the model is raised again later
            logger.warning("steps run without a CUDA graph, which is slower: %s", error)
            torch.cuda.set_stream(stream)  # a failed capture leaves its own stream
            random.graphsafe_set_state(spare)  # and leaves a generator that expects its end
            torch.cuda.synchronize()
            step.forget_gradients()
            return step


def average_gradients(ranks: Ranks, parameters: Sequence[nn.Parameter]) -> None:
    """Replace the gradient of each parameter by its mean over the ranks.

    A loss may reach a parameter on some ranks only; on the others its gradient is zero.
    """
    if ranks.size > 1:
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
    average(ranks, [p.grad for p in parameters if p.grad is not None])


@torch.no_grad()
def average(ranks: Ranks, tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its mean over the ranks, in one reduction."""
    if ranks.size == 1 or not tensors:
        return
    mean = ranks.sum(torch.cat([tensor.flatten() for tensor in tensors]))
    mean /= ranks.size
    parts = torch.split(mean, [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))
