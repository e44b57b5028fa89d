"""DeepSparse 1.8.0, the last release of a CPU runtime that skips zeros.

Its requirements exclude the onnx that PyTorch's exporter needs, but onnx 1.17 serves both.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from chita.deploy.example_input import arrays_of
from chita.deploy.paths.exported import Exported, Run, require_package
from chita.errors import ChitaError, describe_error

INSTALL = (
    "with Python 3.10 or 3.11, pip install deepsparse==1.8.0 'numpy<2', then "
    "pip install --no-deps onnx==1.17.0"
)


def deepsparse_path(exported: Exported) -> Run:
    """Return a path that runs the exported model in DeepSparse, for the batch of the example."""
    require_package("deepsparse", INSTALL)
    os.environ.setdefault("NM_DISABLE_ANALYTICS", "1")  # its import reports to a server otherwise
    try:
        from deepsparse import Engine
    except Exception as error:  # versions of its requirements that do not fit raise any type
        raise ChitaError(f"{describe_error(error)}; {INSTALL}") from error

    arrays = arrays_of(exported.example)
    with tempfile.TemporaryDirectory() as scratch:  # the engine has read the file when it is built
        file = Path(scratch) / "model.onnx"
        file.write_bytes(exported.old_content)
        try:
            engine = Engine(str(file), len(arrays[0]), num_cores=torch.get_num_threads())
        except Exception as error:  # an operator that it does not know, or a file that is too new
            raise ChitaError(f"it cannot open the model: {describe_error(error)}") from error

    def run() -> list[Tensor]:
        return [torch.from_numpy(array) for array in engine.run(arrays)]

    return run
