"""The training step of recovery: the divergence from the dense network, or the user's loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from chita.model.batch import Batch, map_tensors
from chita.model.forward import device_of
from chita.model.training_step import TrainingStep

LEAST_CAST = 100_000  # parameters: with fewer, the casts of autocast take longer than they save

Objective = Callable[[nn.Module, Batch], Tensor]  # the loss of a batch, a scalar


class RecoveryStep(TrainingStep):
    """The forward and backward pass of a batch of calibration samples.

    Float32 models run in bfloat16 where torch considers that safe (autocast), if the device has
    instructions for it.

    Args:
        model: the pruned model.
        parameters: the parameters that are trained.
        objective: the loss of a batch.
        example: a batch in the form of all later ones.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: Sequence[nn.Parameter],
        objective: Objective,
        example: Batch,
    ) -> None:
        super().__init__(model, parameters)
        self._objective, self._form = objective, example.content
        self._place = device_of(model)

    def forward_backward(self, *batch: Tensor) -> Tensor:
        """Accumulate gradients, and return the loss.

        Args:
            batch: the tensors of a batch, in the order of `tensors_of`.
        """
        tensors = iter(batch)
        content = map_tensors(lambda _: _fast_format(next(tensors)), self._form)
        with fast_arithmetic(self._place, self.parameters):
            loss = self._objective(self.model, Batch(content, len(batch[0])))
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def fast_arithmetic(place: torch.device, parameters: Iterable[nn.Parameter]) -> torch.autocast:
    """Return a context in which a model of float32 parameters runs in bfloat16 where that pays.

    Args:
        place: the device of the model.
        parameters: its parameters.
    """
    pays = _has_bfloat16(place) and _worth_casting(list(parameters))
    return torch.autocast(place.type, torch.bfloat16, enabled=pays, cache_enabled=False)


def _has_bfloat16(place: torch.device) -> bool:
    """Return whether a device multiplies matrices faster in bfloat16 than in float32."""
    if place.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


def _worth_casting(parameters: Sequence[nn.Parameter]) -> bool:
    """Return whether a model is in float32, and so large that casts take little of its time."""
    size = sum(parameter.numel() for parameter in parameters)
    return size >= LEAST_CAST and all(p.dtype == torch.float32 for p in parameters)


def _fast_format(tensor: Tensor) -> Tensor:
    """Return images with their channels last, which convolutions preserve and are faster with."""
    if tensor.ndim == 4 and tensor.is_floating_point():
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor
