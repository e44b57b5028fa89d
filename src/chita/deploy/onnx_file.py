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

from chita.deploy.example_input import arrays_of, check_example, difference, rounding
from chita.errors import ChitaError, describe_error
from chita.files.atomic import as_path, write_whole
from chita.files.single_file import prepare_file
from chita.model.checks import check_module, check_not_sharded
from chita.model.forward import Example, evaluating, unwrapped
from chita.model.samples.batch import map_tensors, tensors_of

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

OLD_IR = 8  # the version of the file format since 2021, which old runtimes read
TOLERANCE = 1e-4  # the allowed difference relative to the largest output, in float32


def export_onnx(
    model: nn.Module, example: Example, path: str | Path, *, opset: int | None = None
) -> float:
    """Write a model as an ONNX file, and check it on the example.

    The exported model accepts any batch size (dimension 0 of every input), unless that of the
    example is 1 or the model fixes it.

    Args:
        model: the model, exported in eval mode with all weights, including zeros.
        example: a tensor, a tuple of the model's arguments or a dict of its keywords.
        path: the file, which must end in .onnx and is written atomically.
        opset: the version of the operators, for runtimes that do not read the newest files:
            DeepSparse reads 18. By default PyTorch's exporter chooses it.

    Returns:
        The largest difference between onnxruntime's outputs and the model's, in units of the
        largest output.

    Raises:
        ChitaError: a package is missing, the model cannot be exported, or the difference exceeds
            the tolerance (1e-4, more in half precision), or the model contains NaN. No file is
            written then.
    """
    check_module(model)
    check_not_sharded(model)
    path = as_path(path)
    if opset is not None and (isinstance(opset, bool) or not isinstance(opset, int) or opset < 1):
        raise ChitaError(f"opset must be an integer of at least 1, or None, got {opset!r}")
    prepare_file(path, ".onnx")
    with evaluating(model):
        wanted = check_example(model, example)
    _check_numbers(model, wanted)
    content = onnx_bytes(model, example, opset)
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


def _check_numbers(model: nn.Module, outputs: Any) -> None:
    """Raise an error for a broken model: its file could not be compared with it."""
    broken = [name for name, parameter in model.named_parameters() if bool(parameter.isnan().any())]
    if broken or any(bool(tensor.isnan().any()) for tensor in tensors_of(outputs)):
        where = f"the parameters {', '.join(broken[:3])}" if broken else "the outputs"
        raise ChitaError(f"the ONNX file is not written: {where} of the model contain NaN")


def onnx_bytes(model: nn.Module, example: Example, opset: int | None = None) -> bytes:
    """Return the content of the model's ONNX file.

    Args:
        model: the model.
        example: its inputs.
        opset: the version of the operators; by default the one that PyTorch's exporter chooses.
    """
    _need("onnx", "onnxscript")
    keywords = dict(example) if isinstance(example, Mapping) else None
    args = () if keywords is not None else example if isinstance(example, tuple) else (example,)
    sizes = map_tensors(_free_batch, keywords if keywords is not None else args)
    model = unwrapped(model)  # the exporter does not accept a compiled model
    with evaluating(model), _quiet(), tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.onnx"
        try:
            program = torch.onnx.export(
                model,
                args,
                kwargs=keywords,
                dynamo=True,
                dynamic_shapes=sizes,
                verbose=False,
                opset_version=opset,
            )
            assert program is not None
            program.save(file, external_data=False)
        except Exception as error:  # the exporter raises many types of errors
            cause = error.__cause__ or error
            # Further lines are for developers of the exporter. Some errors have no text at all.
            reason = next(iter(str(cause).splitlines()), type(cause).__name__)
            raise ChitaError(f"the model cannot be exported to ONNX: {reason}") from error
        return file.read_bytes() if opset is None else _for_older_readers(file.read_bytes(), opset)


def _for_older_readers(content: bytes, opset: int) -> bytes:
    """Return the file in an older version of the format, without any loss of content.

    Where the exporter cannot convert the operators, it writes its own version of them. This is an
    error here.
    """
    import onnx

    file = onnx.load_model_from_string(content)
    written = [each.version for each in file.opset_import if each.domain in ("", "ai.onnx")]
    if written and written != [opset]:
        raise ChitaError(
            f"the model cannot be exported with opset={opset}: the exporter wrote {written[0]}"
        )
    file.ir_version = min(file.ir_version, OLD_IR)
    return bytes(file.SerializeToString())


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
    names, arrays = [given.name for given in session.get_inputs()], arrays_of(example)
    with _as_chita_error("run"):
        found = session.run(None, dict(zip(names, arrays, strict=True)))
        return [torch.from_numpy(array) for array in found]


@contextlib.contextmanager
def _as_chita_error(what: str) -> Iterator[None]:
    """Convert exceptions of onnxruntime, whose only base class is Exception, to ChitaError."""
    try:
        yield
    except Exception as error:
        reason = describe_error(error)
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
