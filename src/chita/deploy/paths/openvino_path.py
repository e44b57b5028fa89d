"""OpenVINO on the CPU."""

from __future__ import annotations

import io

import torch
from torch import Tensor

from chita.deploy.example_input import arrays_of
from chita.deploy.paths.exported import Exported, Run, require_package
from chita.errors import ChitaError, describe_error


def openvino_path(exported: Exported) -> Run:
    """Return a path that runs the exported model in OpenVINO.

    By default OpenVINO computes in bfloat16 where the CPU can, which changes the outputs. Here
    it keeps the precision of the model, as all other paths do.
    """
    require_package("openvino", "pip install 'chita[openvino]'")
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
        "EXECUTION_MODE_HINT": "ACCURACY",
    }
    try:
        read = core.read_model(io.BytesIO(exported.content))
        request = core.compile_model(read, "CPU", settings).create_infer_request()
    except RuntimeError as error:
        raise ChitaError(f"OpenVINO cannot open the model: {describe_error(error)}") from error
    arrays = arrays_of(exported.example)

    def run() -> list[Tensor]:
        return [torch.from_numpy(array.copy()) for array in request.infer(arrays).values()]

    return run
