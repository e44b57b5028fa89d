"""Export to ONNX files, checked against onnxruntime (the extra `onnx`)."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from chita.deploy.example_input import check_example, difference, rounding
from chita.errors import ChitaError
from chita.files.atomic import as_path, write_whole
from chita.files.run_folder import prepare_file
from chita.model.batch import map_tensors, tensors_of
from chita.model.forward import Example, evaluating
from chita.model.weights import check_module

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

TOLERANCE = 1e-4  # the allowed difference relative to the largest output, in float32


def export_onnx(model: nn.Module, example: Example, path: str | Path) -> float:
    """Write a model as an ONNX file, and check it on the example.

    The exported model accepts any batch size (dimension 0 of every input), unless that of the
    example is 1 or the model fixes it.

    Args:
        model: the model, exported in eval mode with all weights, including zeros.
        example: a tensor, a tuple of the model's arguments or a dict of its keywords.
        path: the file, which must end in .onnx and is written atomically.

    Returns:
        The largest difference between onnxruntime's outputs and the model's, in units of the
        largest output.

    Raises:
        ChitaError: a package is missing, the model cannot be exported, or the difference exceeds
            the tolerance (1e-4, more in half precision). No file is written then.
    """
    check_module(model)
    path = as_path(path)
    prepare_file(path, ".onnx")
    with evaluating(model):
        wanted = check_example(model, example)
    content = onnx_bytes(model, example)
    found = run_onnx(open_onnx(content), example)
    worst = difference(found, tensors_of(wanted))
    allowed = max(TOLERANCE, rounding(wanted))
    if not worst <= allowed:
        raise ChitaError(
            f"the ONNX file is not written: the outputs of onnxruntime differ from the model's by "
            f"{worst:.1e} of the largest, but only {allowed:.0e} is allowed"
        )
    write_whole(path, content)
    return worst


def onnx_bytes(model: nn.Module, example: Example) -> bytes:
    """Return the content of the model's ONNX file."""
    _need("onnx", "onnxscript")
    keywords = dict(example) if isinstance(example, Mapping) else None
    args = () if keywords is not None else example if isinstance(example, tuple) else (example,)
    sizes = map_tensors(_free_batch, keywords if keywords is not None else args)
    with evaluating(model), _quiet(), tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.onnx"
        try:
            program = torch.onnx.export(
                model, args, kwargs=keywords, dynamo=True, dynamic_shapes=sizes, verbose=False
            )
            assert program is not None
            program.save(file, external_data=False)
        except Exception as error:  # the exporter raises many types of errors
            reason = str(error.__cause__ or error).splitlines()[
                0
            ]  # the rest is for developers of the exporter
            raise ChitaError(f"the model cannot be exported to ONNX: {reason}") from error
        return file.read_bytes()


def open_onnx(content: bytes) -> InferenceSession:
    """Open an ONNX file for the CPU, with as many threads as PyTorch uses."""
    _need("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with _as_chita_error("open"):
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run_onnx(session: InferenceSession, example: Example) -> list[Tensor]:
    """Return the outputs of an ONNX file for an example, in order."""
    names = [given.name for given in session.get_inputs()]
    with _as_chita_error("run"):
        arrays = [tensor.detach().cpu().numpy() for tensor in tensors_of(example)]
        found = session.run(None, dict(zip(names, arrays, strict=True)))
        return [torch.from_numpy(array) for array in found]


@contextlib.contextmanager
def _as_chita_error(what: str) -> Iterator[None]:
    """Convert exceptions of onnxruntime, whose only base class is Exception, to ChitaError."""
    try:
        yield
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ChitaError(f"onnxruntime cannot {what} the model on the CPU: {reason}") from error


def _free_batch(tensor: Tensor) -> dict[int, Any]:
    """Return the dimensions of an input whose size may vary; the exporter fixes a size of 1."""
    return {0: torch.export.Dim.AUTO} if tensor.ndim and len(tensor) > 1 else {}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress messages of the exporter about itself and optional packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _need(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ChitaError(f"ONNX needs {package}: pip install 'chita[onnx]'")
