"""Products with the non-zeros only: two kernels of PyTorch that go through them row by row."""

from __future__ import annotations

import warnings

from torch import Tensor, nn
from torch.nn import functional

from chita.fast.product import Product, is_product, matrix_of


class SparseProduct(Product):
    """PyTorch's product with a CSR matrix, best for few inputs at a time."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(layer)
        self.register_buffer("matrix", _compressed(layer))
        self.matrix: Tensor

    @classmethod
    def of(cls, layer: nn.Module) -> SparseProduct | None:
        """This form of a layer; None for one that is no plain product."""
        return cls(layer) if is_product(layer) else None

    def product(self, x: Tensor) -> Tensor:
        y: Tensor = self.matrix @ x.mT
        return y.mT


class SparseSums(Product):
    """Each output as a weighted sum of rows of the transposed inputs, best for many of them.

    That is an embedding bag: its kernel runs along the inputs of a batch, which lie together. The
    columns and values of row r of W are those from starts[r] on.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(layer)
        matrix = _compressed(layer)
        self.register_buffer("starts", matrix.crow_indices())
        self.register_buffer("columns", matrix.col_indices())
        self.register_buffer("values", matrix.values())
        self.starts: Tensor
        self.columns: Tensor
        self.values: Tensor

    @classmethod
    def of(cls, layer: nn.Module) -> SparseSums | None:
        """This form of a layer; None for one that is no plain product."""
        return cls(layer) if is_product(layer) else None

    def product(self, x: Tensor) -> Tensor:
        return functional.embedding_bag(
            self.columns,
            x.mT.contiguous(),
            self.starts,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        ).mT


def _compressed(layer: nn.Module) -> Tensor:
    """W in compressed rows (CSR)."""
    with warnings.catch_warnings():  # that these tensors are in beta
        warnings.simplefilter("ignore", UserWarning)
        return matrix_of(layer).to_sparse_csr()
