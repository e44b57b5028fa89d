"""Every other layer: torch.func differentiates the module, for all rows in one batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from chita.curvature.per_sample.registry import Piece, by_row
from chita.model.hooks import Call, NotSeparableError
from chita.model.samples.batch import map_tensors


def any_layer(call: Call, gradient: Tensor, rows: int) -> Iterator[Piece]:
    """Yield the pieces for arguments and an output gradient of shape (R * m, ...)."""
    module = call.owner.module
    if getattr(module, "sparse", False):  # vmap cannot batch the gradients of a sparse embedding
        raise NotSeparableError(f"{type(module).__name__} has sparse=True")
    parameters = {name: weight.parameter.detach() for name, weight in call.owner.owned.items()}

    def row_gradient(args: Any, keywords: Any, gradient: Tensor) -> dict[str, Tensor]:
        def output(parameters: dict[str, Tensor]) -> Any:
            return functional_call(module, parameters, args, keywords)

        pull_back = torch.func.vjp(output, parameters)[1]
        gradients: dict[str, Tensor] = pull_back(gradient)[0]
        return gradients

    nest = (call.args, call.keywords, gradient)
    per_row = map_tensors(lambda tensor: by_row(tensor.detach(), rows), nest)
    in_dims = _in_dims(per_row)
    for name, gradients in torch.func.vmap(row_gradient, in_dims)(*per_row).items():
        yield Piece(name, 0, gradients.flatten(1).t())


def _in_dims(nest: Any) -> Any:
    """Return the axis of the rows for vmap: 0 for tensors, None for other values."""
    if isinstance(nest, dict):
        return {key: _in_dims(value) for key, value in nest.items()}
    if isinstance(nest, tuple):
        return tuple(_in_dims(value) for value in nest)
    return 0 if isinstance(nest, Tensor) else None
