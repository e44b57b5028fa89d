"""The runtimes by name: each builds a path from an exported model, or states why it cannot."""

from __future__ import annotations

from collections.abc import Callable

from chita.deploy.paths.deepsparse_path import deepsparse_path
from chita.deploy.paths.exported import Exported, Run
from chita.deploy.paths.onnxruntime_path import onnxruntime_path
from chita.deploy.paths.openvino_path import openvino_path

Runtime = Callable[[Exported], Run]  # raises a ChitaError with the reason if it cannot be used

DEEPSPARSE = "deepsparse"

RUNTIMES: dict[str, Runtime] = {
    "onnxruntime": onnxruntime_path,
    "openvino": openvino_path,
    DEEPSPARSE: deepsparse_path,
}
