"""Products with only the non-zeros: two kernels of PyTorch that process them row by row."""

from __future__ import annotations

import warnings
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.deploy.fast.product import Product, matrix_of
from chita.model.layers import is_product

Self = TypeVar("Self", bound="Sparse")


class Sparse(Product):
    """W in compressed rows (CSR): row r has the columns and values from starts[r] on."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(layer)
        weight = matrix_of(layer)
        with warnings.catch_warnings():  # PyTorch warns that these tensors are in beta
            warnings.simplefilter("ignore", UserWarning)
            matrix = weight.to_sparse_csr()
        self.size = weight.shape
        self.register_buffer("starts", matrix.crow_indices())
        self.register_buffer("columns", matrix.col_indices())
        self.register_buffer("values", matrix.values())
        self.starts: Tensor
        self.columns: Tensor
        self.values: Tensor

    @classmethod
    def of(cls: type[Self], layer: nn.Module) -> Self | None:
        """Return this form of a layer; None if the layer is not a plain product."""
        return cls(layer) if is_product(layer) else None


class SparseProduct(Sparse):
    """PyTorch's product with a CSR matrix, best for few inputs at a time."""

    def product(self, x: Tensor) -> Tensor:
        # Built in each call (3 microseconds): a module with such a tensor cannot be copied.
        matrix = torch.sparse_csr_tensor(
            self.starts, self.columns, self.values, size=self.size, check_invariants=False
        )
        y: Tensor = matrix @ x.mT
        return y.mT


class SparseSums(Sparse):
    """Each output as a weighted sum of rows of the transposed inputs, best for large batches.

    This is an embedding bag, whose kernel runs along the adjacent inputs of a batch.
    """

    def product(self, x: Tensor) -> Tensor:
        return functional.embedding_bag(
            self.columns,
            x.mT.contiguous(),
            self.starts,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        ).mT
