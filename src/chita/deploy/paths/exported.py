"""A network as ONNX files, which are written once and shared by the runtimes that read them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cached_property
from typing import Any

from torch import nn

from chita.deploy.onnx_file import onnx_bytes
from chita.errors import ChitaError
from chita.model.forward import Example

Run = Callable[[], Any]  # runs the model on the example

OLD_OPSET = 18  # operators that runtimes of 2024, such as DeepSparse, read


class Exported:
    """A model and its example, with the content of its ONNX files.

    Args:
        model: the model.
        example: its inputs.
    """

    def __init__(self, model: nn.Module, example: Example) -> None:
        self.model, self.example = model, example

    @cached_property
    def content(self) -> bytes:
        """The file that `chita export` writes."""
        return onnx_bytes(self.model, self.example)

    @cached_property
    def old_content(self) -> bytes:
        """The same for runtimes that are no longer developed."""
        return onnx_bytes(self.model, self.example, opset=OLD_OPSET)


def require_package(package: str, install: str) -> None:
    """Raise a ChitaError with the line that installs a package, if it is missing."""
    if importlib.util.find_spec(package) is None:
        raise ChitaError(f"{package} is not installed: {install}")
