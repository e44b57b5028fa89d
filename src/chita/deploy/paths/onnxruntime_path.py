"""onnxruntime on the CPU. It multiplies zeros like other numbers."""

from __future__ import annotations

from functools import partial

from chita.deploy.onnx_file import open_onnx, run_onnx
from chita.deploy.paths.exported import Exported, Run, require_package


def onnxruntime_path(exported: Exported) -> Run:
    """Return a path that runs the exported model in onnxruntime."""
    require_package("onnxruntime", "pip install 'chita[onnx]'")
    return partial(run_onnx, open_onnx(exported.content), exported.example)
