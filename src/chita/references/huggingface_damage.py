"""Find the file of a Hugging Face folder because of which transformers cannot read the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from chita.errors import ChitaError
from chita.files.huggingface_names import CONFIG
from chita.files.pickled import load_pickled
from chita.files.regular import open_regular, read_regular
from chita.files.run_folder import MODEL_FILE

DTYPES = ("dtype", "torch_dtype")  # the name in new and in old versions of transformers
_PICKLED = "pytorch_model.bin"
_INDEX = ".index.json"  # beside weights that are divided into several files
_MOST_BYTES = 10**7  # of a config.json, which usually has about a thousand, or of an index


def check_files(folder: Path) -> None:
    """Check the precision in config.json and the weight files, after transformers has failed.

    Raises:
        ChitaError: it names the first file that is wrong.
    """
    if (folder / CONFIG).is_file():
        _check_dtypes(folder / CONFIG, read_json(folder / CONFIG))
    for path in _weight_files(folder):
        if not path.is_file():
            raise ChitaError(f"{path} is missing: copy or download all files of the weights")
        try:
            _read_weights(path)
        except Exception as error:  # damaged files raise many types of errors
            raise ChitaError(
                f"{path} is damaged, or is not a file of weights ({type(error).__name__}): copy or "
                "download it again"
            ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        ChitaError: the file cannot be read, or contains something else.
    """
    try:
        content = json.loads(read_regular(path, _MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ChitaError(f"cannot read {path} as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ChitaError(f"{path} is damaged: it must be a JSON object, got {content!r:.80}")
    return content


def _check_dtypes(path: Path, config: Mapping[str, Any]) -> None:
    """Check the precisions in a configuration, and in those of its parts."""
    for name, value in config.items():
        if isinstance(value, dict):
            _check_dtypes(path, value)
        elif name in DTYPES and not (value is None or _is_float(value)):
            raise ChitaError(
                f"{name} in {path} must be a floating-point type of torch, such as float32, "
                f"float16 or bfloat16, got {value!r}"
            )


def _is_float(name: Any) -> bool:
    found = getattr(torch, name, None) if isinstance(name, str) else None
    return isinstance(found, torch.dtype) and found.is_floating_point


def _weight_files(folder: Path) -> Iterator[Path]:
    """Yield the files that contain the weights, which may be missing."""
    if not (folder / CONFIG).is_file():
        yield from folder.glob("*.gguf")
        return
    for name in (MODEL_FILE, _PICKLED):
        if (folder / name).exists():
            yield folder / name
            return
        index = folder / f"{name}{_INDEX}"
        if index.exists():
            names = read_json(index).get("weight_map")
            if not isinstance(names, dict):
                raise ChitaError(f"{index} is damaged: weight_map must name the files of weights")
            yield from (folder / str(part) for part in sorted(set(names.values())))
            return
    raise ChitaError(
        f"{folder} has no weights: copy {MODEL_FILE} or {_PICKLED} of the model into it, or its "
        f"parts with {MODEL_FILE}{_INDEX}"
    )


def _read_weights(path: Path) -> None:
    """Read the header of a file, or a pickled file as a whole; a damaged one raises an error."""
    if path.suffix == ".safetensors":
        with safe_open(path, "pt"):
            pass
    elif path.suffix == ".gguf":
        from gguf import GGUFReader

        GGUFReader(path)
    else:
        with open_regular(path) as file:
            load_pickled(file)
