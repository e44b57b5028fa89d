"""The forward and backward pass of one training step, on a GPU as one CUDA graph.

Launching the kernels of a small network one by one from Python takes longer than they run. A CUDA
graph launches all of them at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from chita.data.dataset import Images
from chita.gradual.sparsifier import Sparsifier
from chita.model.forward import buffers_restored, device_of

logger = logging.getLogger(__name__)

WARM_UP = 3  # steps before a capture, in which libraries select kernels and allocate memory

Pass = Callable[[Tensor, Tensor], Tensor]


class Step:
    """The forward and backward pass of a batch; it leaves the gradients in the parameters.

    Args:
        model: returns (B, classes) logits or log-probabilities.
        sparsifier: may replace weights and add a penalty to the loss.
        parameters: the parameters of the optimizer.
        data: the images, whose mean and standard deviation normalise the inputs.
        label_smoothing: the share of each target that is spread over all classes.
    """

    def __init__(
        self,
        model: nn.Module,
        sparsifier: Sparsifier,
        *,
        parameters: Sequence[nn.Parameter],
        data: Images,
        label_smoothing: float,
    ) -> None:
        self.model = model
        self.parameters = parameters
        self._sparsifier = sparsifier
        self._label_smoothing = label_smoothing
        self._place = device_of(model)
        # (x / 255 - mean) / std of a pixel x is one product and one sum.
        mean, std = (torch.tensor(each)[:, None, None] for each in (data.mean, data.std))
        self._scale = (1 / (255 * std)).to(self._place)
        self._shift = (-mean / std).to(self._place)

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Compute the gradients of a batch; earlier gradients are discarded.

        Args:
            images: (B, C, H, W) uint8.
            labels: (B,).

        Returns:
            The loss without the sparsifier's penalty.
        """
        self.forget_gradients()
        return self.forward_backward(images, labels)

    def forget_gradients(self) -> None:
        """Remove all gradients, so that the next ones are allocated anew."""
        for parameter in self.parameters:
            parameter.grad = None

    def forward_backward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Accumulate gradients. A synchronisation with the GPU would make a capture fail."""
        effective = self._sparsifier.effective()
        with torch.autocast(
            self._place.type, torch.bfloat16, enabled=self._on_gpu, cache_enabled=False
        ):
            outputs = functional_call(self.model, effective, (self._normalised(images),))
        loss = F.cross_entropy(outputs.float(), labels, label_smoothing=self._label_smoothing)
        penalty = self._sparsifier.penalty()
        total = loss if penalty is None else loss + penalty
        total.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    @property
    def _on_gpu(self) -> bool:
        return self._place.type == "cuda"

    def _normalised(self, images: Tensor) -> Tensor:
        inputs = images * self._scale + self._shift
        # The memory format of tensor cores; convolutions preserve it.
        return inputs.contiguous(memory_format=torch.channels_last) if self._on_gpu else inputs


class CapturedStep:
    """A `Step` captured as a CUDA graph, for batches of one shape.

    A sparsifier must change its tensors in place.

    Args:
        step: the step to capture; the model does not change.
        images: a batch with the shape of all later batches.
        labels: the labels of the batch.
    """

    def __init__(self, step: Step, images: Tensor, labels: Tensor) -> None:
        self._step = step
        self._images, self._labels = images.clone(), labels.clone()
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), buffers_restored(step.model):
            for _ in range(WARM_UP):
                step(self._images, self._labels)
        torch.cuda.current_stream().wait_stream(stream)
        step.forget_gradients()
        # Other threads, such as one that pins memory, may call CUDA meanwhile.
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._loss = step.forward_backward(self._images, self._labels)
        self._gradients = [parameter.grad for parameter in step.parameters]

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Run the graph, as `Step` does; the next call overwrites the returned loss."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        # Other code, such as a pruning step, may have replaced the gradients.
        for parameter, gradient in zip(self._step.parameters, self._gradients, strict=True):
            parameter.grad = gradient
        self._graph.replay()
        return self._loss


def fastest(step: Step, images: Tensor, labels: Tensor) -> Pass:
    """Return the step as a CUDA graph if the batch is on a GPU and a capture succeeds."""
    if not images.is_cuda:
        return step
    stream, random = torch.cuda.current_stream(), _random(images.device)
    spare = random.clone_state()
    try:
        return CapturedStep(step, images, labels)
    except RuntimeError as error:
        logger.warning("steps run without a CUDA graph, which is slower: %s", error)
        torch.cuda.set_stream(stream)  # a failed capture leaves its own stream
        random.graphsafe_set_state(spare)  # and leaves a generator that expects its end
        torch.cuda.synchronize()
        step.forget_gradients()
        return step


def _random(place: torch.device) -> torch.Generator:
    """Return the default generator of a GPU."""
    number = torch.cuda.current_device() if place.index is None else place.index
    return torch.cuda.default_generators[number]
