"""Models of Hugging Face in a local folder: hf:FOLDER, or FOLDER."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from chita.errors import ChitaError
from chita.files.huggingface_names import CONFIG, HUGGINGFACE_FILES
from chita.files.run_folder import model_file
from chita.files.run_manifest import MANIFEST_FILE
from chita.references.call import call_given
from chita.references.given_network import GivenNetwork
from chita.references.huggingface_damage import DTYPES, check_files, read_json
from chita.references.huggingface_files import (
    StoredForm,
    load_tokenizer,
    quiet,
    save_model,
    source_of,
)

PREFIX = "hf:"


def is_huggingface_folder(text: str) -> bool:
    """Return whether a text is the path of a folder with a model of Hugging Face."""
    folder = Path(text)
    return (folder / CONFIG).is_file() or any(folder.glob("*.gguf"))


def huggingface_network(text: str, arguments: Mapping[str, Any]) -> GivenNetwork:
    """Return the model in a folder that `save_pretrained` wrote, or in a GGUF file.

    Args:
        text: hf:FOLDER. Its config.json names the architecture; a folder without one has a single
            GGUF file. Nothing is downloaded, and no code in the folder runs.
        arguments: further arguments of `from_pretrained`, such as num_labels=2.
    """
    model = _FolderModel(text, arguments)
    return GivenNetwork(
        model.build,
        partial(model.build, trained=True),
        reads=(model.folder,),
        tokenizer=partial(load_tokenizer, model.folder),
        save=model.save,
        writes=HUGGINGFACE_FILES,
    )


class _FolderModel:
    """The model of a folder: builds it, and writes a pruned one in the same form.

    Models in half precision are converted to float32, unless `arguments` has a dtype: training and
    second-order methods need the precision.
    """

    def __init__(self, text: str, arguments: Mapping[str, Any]) -> None:
        self.folder = Path(text.removeprefix(PREFIX))
        source = source_of(self.folder)
        self._text, self._class = text, _model_class(self.folder, quantized="gguf_file" in source)
        self._given = {**source, _dtype_argument(): "auto", **arguments}
        self._converts = not any(name in arguments for name in DTYPES)
        self._form = StoredForm()  # of the model that was built last
        if (self.folder / MANIFEST_FILE).exists():
            model_file(self.folder)  # a run that is unfinished, or was changed, is an error

    def build(self, *, trained: bool = False) -> nn.Module:
        """Return a new model; with `trained`, missing weights are an error."""
        given = {**self._given, "output_loading_info": True}
        with quiet():
            model, loaded = self._read(given)
        if trained and (missing := sorted(loaded["missing_keys"])):
            raise ChitaError(
                f"{self.folder} has no weights for {', '.join(missing[:3])}"
                f"{f' and {len(missing) - 3} more' if len(missing) > 3 else ''}, which would be "
                "random: train the model first, or pass --checkpoint"
            )
        self._form = StoredForm(model.dtype, getattr(model.config, "use_cache", None))
        if self._form.use_cache is not None:
            model.config.use_cache = False  # a cache of keys and values is for generation only
        half = self._form.dtype in (torch.float16, torch.bfloat16)
        return model.float() if half and self._converts else model  # type: ignore[no-any-return]

    def _read(self, given: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """Return the model and the loading information of `from_pretrained`."""
        try:
            found: tuple[Any, Mapping[str, Any]] = call_given(
                self._text, self._class.from_pretrained, given
            )
        except ChitaError:
            check_files(self.folder)  # it names the file that is wrong
            raise
        return found

    def save(self, model: nn.Module, folder: Path) -> None:
        """Write a model that `build` returned, pruned, into a folder."""
        save_model(model, folder, form=self._form, source=self.folder)


def _dtype_argument() -> str:
    """Return the name of the argument of `from_pretrained` for the precision."""
    import transformers

    return next(name for name in DTYPES if hasattr(transformers.PretrainedConfig(), name))


def _model_class(folder: Path, *, quantized: bool) -> Any:
    """Return the class that config.json names, or AutoModel if it names none.

    Args:
        folder: the folder.
        quantized: whether its model is a GGUF file, which contains a language model.
    """
    names = [] if quantized else _architectures(folder)
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ChitaError(
            f"{PREFIX}{folder} needs transformers: pip install 'chita[transformers]'"
        ) from error
    if not names:
        return transformers.AutoModelForCausalLM if quantized else transformers.AutoModel
    found = getattr(transformers, names[0], None)
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        raise ChitaError(
            f"{folder / CONFIG} names the architecture {names[0]!r}, which transformers "
            f"{transformers.__version__} does not have; build it in a Python file, and give "
            "FILE.py:NAME"
        )
    return found


def _architectures(folder: Path) -> list[str]:
    path = folder / CONFIG
    names = read_json(path).get("architectures")
    if names is not None and not (
        isinstance(names, list) and all(isinstance(name, str) for name in names)
    ):
        raise ChitaError(f"{path} is damaged: architectures must be a list of names, got {names!r}")
    return names or []
