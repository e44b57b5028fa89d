"""What a model costs: parameters, non-zeros, bytes and multiply-adds, dense and pruned."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from chita.model.forward import Example, call, evaluating
from chita.model.prunable import is_conv1d

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MultiplyAdds:
    """Of Linear and convolution layers on one sample: all of them, and those with a weight."""

    dense: int
    pruned: int


@dataclass(frozen=True)
class Counts:
    """The whole model, what is not pruned included.

    Attributes:
        parameters: entries of all parameters; a shared one counts once.
        nonzeros: those that are not zero.
        dense_bytes: of the parameters as tensors.
        pruned_bytes: with a bit for each entry and the values of the non-zeros, for each
            parameter that this makes smaller.
        multiply_adds: None where the model was not run.
    """

    parameters: int
    nonzeros: int
    dense_bytes: int
    pruned_bytes: int
    multiply_adds: MultiplyAdds | None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def count(model: nn.Module, example: Example | None = None) -> Counts:
    """Count what `model`, as it is now, costs.

    Args:
        model: any module.
        example: one sample to run it on, where the model is; without it, or if the model does not
            take a single sample, multiply-adds are not counted.
    """
    parameters = list(model.parameters())
    return Counts(
        parameters=sum(tensor.numel() for tensor in parameters),
        nonzeros=sum(_nonzeros(tensor) for tensor in parameters),
        dense_bytes=sum(tensor.numel() * tensor.element_size() for tensor in parameters),
        pruned_bytes=sum(_masked_bytes(tensor) for tensor in parameters),
        multiply_adds=None if example is None else _try_multiply_adds(model, example),
    )


@torch.no_grad()
def multiply_adds(model: nn.Module, example: Example) -> MultiplyAdds:
    """Those of one forward pass; a layer that is called twice counts twice.

    A layer multiplies all of its weights once for each position: a row of a Linear layer's
    input, a pixel of a convolution's output (of its input, if it is transposed). Positions in the
    padding count as others do. Products outside of Linear and convolution layers, as those of
    attention, do not count.
    """
    seen: list[tuple[Tensor, int]] = []
    with evaluating(model), _positions_noted(model, seen):
        call(model, example)
    return MultiplyAdds(
        dense=sum(positions * weight.numel() for weight, positions in seen),
        pruned=sum(positions * _nonzeros(weight) for weight, positions in seen),
    )


def _try_multiply_adds(model: nn.Module, example: Example) -> MultiplyAdds | None:
    try:
        return multiply_adds(model, example)
    except Exception as error:  # a count is worth less than the pruned model that it describes
        logger.warning("multiply-adds are not counted: the model fails on one sample: %s", error)
        return None


@contextmanager
def _positions_noted(model: nn.Module, seen: list[tuple[Tensor, int]]) -> Iterator[None]:
    """While the context lasts, each call of a layer is noted: its weight, and its positions."""

    def note(
        layer: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any], output: Tensor
    ) -> None:
        if isinstance(layer, _ConvTransposeNd):
            x: Tensor = args[0] if args else keywords["input"]
            positions = x.numel() // layer.in_channels
        elif isinstance(layer, _ConvNd):
            positions = output.numel() // layer.out_channels
        else:
            positions = output.numel() // output.shape[-1]
        assert isinstance(layer.weight, Tensor)
        seen.append((layer.weight, positions))

    layers = [module for module in model.modules() if _multiplies(module)]
    handles = [layer.register_forward_hook(note, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _multiplies(module: nn.Module) -> bool:
    """Whether a module is a Linear layer, a convolution, or the Conv1D of transformers."""
    return isinstance(module, (nn.Linear, _ConvNd)) or is_conv1d(module)


def _nonzeros(tensor: Tensor) -> int:
    return int(torch.count_nonzero(tensor))


def _masked_bytes(tensor: Tensor) -> int:
    """A bit for each entry and the values of the non-zeros, or the tensor if that is smaller."""
    size = tensor.element_size()
    masked = -(-tensor.numel() // 8) + _nonzeros(tensor) * size
    return min(masked, tensor.numel() * size)
