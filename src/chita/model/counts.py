"""Count the parameters, non-zeros, bytes and multiply-adds of a model, dense and pruned."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chita.model.forward import Example, call, evaluating
from chita.model.hooks import Args, Keywords, first_input, watching
from chita.model.layers import kind_of
from chita.model.samples.batch import copied

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MultiplyAdds:
    """Multiply-adds of the layers for one sample: all, and those with a non-zero weight."""

    dense: int
    pruned: int


@dataclass(frozen=True)
class Counts:
    """The size of a whole model, including parameters that are not pruned.

    Attributes:
        parameters: entries of all parameters; a shared one counts once.
        nonzeros: entries that are not zero.
        dense_bytes: bytes of the parameters as tensors.
        pruned_bytes: bytes with a mask of one bit per entry and the values of the non-zeros, for
            each parameter that becomes smaller in this form.
        multiply_adds: None if the model was not run.
    """

    parameters: int
    nonzeros: int
    dense_bytes: int
    pruned_bytes: int
    multiply_adds: MultiplyAdds | None

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as a dict for JSON."""
        return asdict(self)


def count(model: nn.Module, example: Example | None = None) -> Counts:
    """Count the size and the multiply-adds of a model in its present state.

    Args:
        model: any module.
        example: one sample, on the model's device. Multiply-adds are not counted without it, or if
            the model does not accept a single sample.
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
    """Count the multiply-adds of one forward pass; a layer that is called twice counts twice.

    A layer multiplies all of its weights once at each position: a row of a Linear layer's input, a
    pixel of a convolution's output (of its input, if it is transposed). Positions in the padding
    are counted. Products outside of layers, such as those of attention scores, are not counted.
    """
    seen: list[tuple[Tensor, int]] = []

    def note(layer: nn.Module, args: Args, keywords: Keywords, output: Tensor) -> None:
        kind = kind_of(layer)
        where = first_input(args, keywords) if kind.multiplies_at == "inputs" else output
        positions = where.numel() // where.shape[kind.channel_dim]
        seen.extend((getattr(layer, name), positions) for name in kind.weights)

    layers = [layer for layer in model.modules() if kind_of(layer).multiplies_at is not None]
    with evaluating(model), watching(layers, note):
        call(model, copied(example))
    return MultiplyAdds(
        dense=sum(positions * weight.numel() for weight, positions in seen),
        pruned=sum(positions * _nonzeros(weight) for weight, positions in seen),
    )


def _try_multiply_adds(model: nn.Module, example: Example) -> MultiplyAdds | None:
    try:
        return multiply_adds(model, example)
    except Exception as error:  # do not lose a pruned model for a count
        logger.warning("multiply-adds are not counted: the model fails on one sample: %s", error)
        return None


def _nonzeros(tensor: Tensor) -> int:
    return int(torch.count_nonzero(tensor))


def _masked_bytes(tensor: Tensor) -> int:
    """Return the bytes of a bit mask and the non-zeros, or of the tensor if it is smaller."""
    size = tensor.element_size()
    masked = -(-tensor.numel() // 8) + _nonzeros(tensor) * size
    return min(masked, tensor.numel() * size)
