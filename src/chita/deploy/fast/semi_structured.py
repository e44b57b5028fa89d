"""2:4 weights on the sparse tensor cores of a GPU."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.sparse import SparseSemiStructuredTensorCUSPARSELT, to_sparse_semi_structured

from chita.model.layers import channel_dim, is_product

logger = logging.getLogger(__name__)

HALVES = (torch.float16, torch.bfloat16)
CAPABILITY = (8, 0)  # the first compute capability with sparse tensor cores
ROWS, COLUMNS = 32, 64  # the sizes of a weight in half precision must be multiples of these


class SemiStructured(nn.Module):
    """A Linear layer that stores the two kept weights of each four.

    By default cuSPARSELt selects a kernel without timing, and its result is in column-major order,
    which slows down the next layer. Therefore the first call searches for the fastest kernel with a
    row-major result, for inputs of that size; later calls use the same kernel.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        bias: Tensor | None = getattr(layer, "bias", None)
        with warnings.catch_warnings():  # PyTorch warns that these tensors are a prototype
            warnings.simplefilter("ignore", UserWarning)
            weight = to_sparse_semi_structured(layer.get_parameter("weight").detach())
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.detach(), False)
        self._searched = not isinstance(weight, SparseSemiStructuredTensorCUSPARSELT)

    @classmethod
    def of(cls, layer: nn.Module) -> SemiStructured | None:
        """Return the 2:4 form; None if the layer, its weight or the GPU does not allow it."""
        if not is_product(layer) or channel_dim(layer) != -1:
            return None
        weight = layer.get_parameter("weight")
        if weight.ndim != 2 or not supported(weight) or not is_two_of_four(weight):
            return None
        try:
            return cls(layer)
        except RuntimeError as error:  # PyTorch has no kernels for this GPU
            logger.info("2:4 does not run here: %s", error)
            return None

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer."""
        if not self._searched:
            self._search(x)
        return functional.linear(x, self.weight, self.bias)

    def _search(self, x: Tensor) -> None:
        self._searched = True
        weight: Any = self.weight
        tokens = x.detach().reshape(-1, x.shape[-1])
        try:
            found = torch._cslt_sparse_mm_search(weight.packed, tokens.t(), transpose_result=True)
        except RuntimeError as error:  # sizes that cuSPARSELt pads first
            logger.info("cuSPARSELt uses its default kernel: %s", error)
            return
        weight.alg_id_cusparselt, weight.fuse_transpose_cusparselt = int(found), True


def supported(weight: Tensor) -> bool:
    """Return whether the kernels support the device, type and size of the weight."""
    if weight.device.type != "cuda" or weight.dtype not in HALVES:
        return False
    fits = weight.shape[0] % ROWS == 0 and weight.shape[1] % COLUMNS == 0
    return fits and torch.cuda.get_device_capability(weight.device) >= CAPABILITY


def is_two_of_four(weight: Tensor) -> bool:
    """Return whether at most two of each four neighbours in a row of W are non-zero."""
    if weight.shape[1] % 4:
        return False
    groups = weight.detach().reshape(-1, 4)
    return bool(((groups != 0).sum(1) <= 2).all())
