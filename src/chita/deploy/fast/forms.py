"""The forms of a layer by name: each builds a module, or returns None if it does not fit."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from chita.deploy.fast.compact import Compact
from chita.deploy.fast.semi_structured import SemiStructured
from chita.deploy.fast.sparse import SparseProduct, SparseSums

Form = Callable[[nn.Module], nn.Module | None]

FORMS: dict[str, Form] = {
    "compact": Compact.of,
    "csr": SparseProduct.of,
    "sums": SparseSums.of,
    "2:4": SemiStructured.of,
}


def swap(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """Replace `old` by `new` under all its names; return the model, or `new` if it was `old`."""
    if model is old:
        return new
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module is old:
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, new)
    return model
