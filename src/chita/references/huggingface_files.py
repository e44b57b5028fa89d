"""The files of a Hugging Face folder: its tokenizer, and a pruned model beside a copy of it."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from chita.data.text import Encode
from chita.errors import ChitaError, describe_error
from chita.files.huggingface_names import CONFIG, GENERATION, TOKENIZER_FILES
from chita.files.run_folder import MODEL_FILE
from chita.model.forward import unwrapped

_ONE_FILE = "1000TB"  # above the size of any model, which is written as one file


def source_of(folder: Path) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` for a local folder.

    Raises:
        ChitaError: the folder has neither a config.json nor a single GGUF file.
    """
    given: dict[str, Any] = {
        "pretrained_model_name_or_path": str(folder),
        "local_files_only": True,
        "trust_remote_code": False,
    }
    if (folder / CONFIG).is_file():
        return given
    quantized = sorted(folder.glob("*.gguf")) if folder.is_dir() else []
    if len(quantized) == 1:
        _check_gguf(folder)
        return {**given, "gguf_file": quantized[0].name}
    what = "is not a folder"
    if folder.is_dir():
        what = f"has no {CONFIG} and {len(quantized) or 'no'} GGUF files"
    raise ChitaError(
        f"{folder} {what}; hf:FOLDER takes a local folder that save_pretrained wrote, or one with "
        "a single GGUF file"
    )


def _check_gguf(folder: Path) -> None:
    if find_spec("gguf") is None:
        raise ChitaError(
            f"{folder} has a GGUF file, which needs gguf: pip install 'chita[weights]'"
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Turn off the progress bars of transformers, which appear each time a model is read."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def load_tokenizer(folder: Path) -> Encode:
    """Return a function that converts a text to the token ids of a folder's tokenizer.

    Raises:
        ChitaError: the folder has no tokenizer that can be read.
    """
    tokenizer = _read_tokenizer(folder)

    def encode(text: str) -> list[int]:
        # verbose: a text is longer than the model's sequences, which is no reason for a warning
        ids: list[int] = tokenizer(text, verbose=False)["input_ids"]
        return ids

    return encode


def _read_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    source = source_of(folder)
    if "gguf_file" not in source and not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise ChitaError(
            f"{folder} has no tokenizer, such as tokenizer.json: copy the tokenizer files of the "
            "model into it"
        )
    try:
        with quiet():
            return AutoTokenizer.from_pretrained(**source)
    except Exception as error:  # many kinds of damaged files, and of missing packages
        raise ChitaError(
            f"the tokenizer of {folder} cannot be read: {describe_error(error)}"
        ) from error


@dataclass(frozen=True)
class StoredForm:
    """What chita changes of a model when it reads it, and restores when it writes it.

    Attributes:
        dtype: the precision of the weights in the file.
        use_cache: the setting of config.json; None if there is none.
    """

    dtype: torch.dtype | None = None
    use_cache: bool | None = None


def save_model(model: nn.Module, folder: Path, *, form: StoredForm, source: Path) -> None:
    """Write a model and its tokenizer, so that `from_pretrained` reads them.

    Args:
        model: the pruned model, which does not change.
        folder: an existing folder to write to.
        form: the precision to write in, and the setting of use_cache.
        source: the folder that the model was read from, whose tokenizer and settings of generation
            are copied.
    """
    written: Any = copy.deepcopy(unwrapped(model)).to(form.dtype)
    if form.use_cache is not None:
        written.config.use_cache = form.use_cache
    # A GGUF model is no longer quantized once it is read, but transformers would not write it.
    written.hf_quantizer = None
    if hasattr(written.config, "quantization_config"):
        del written.config.quantization_config
    with quiet():
        written.save_pretrained(folder, max_shard_size=_ONE_FILE)
    shutil.copymode(folder / CONFIG, folder / MODEL_FILE)  # safetensors hides it from other users
    for name in (GENERATION, *TOKENIZER_FILES):
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if "gguf_file" in source_of(source):  # which contains the tokenizer
        _read_tokenizer(source).save_pretrained(folder)
