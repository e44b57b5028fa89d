"""The data of a network: a data set, an image folder, a text or the data of a user's reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from chita.data import NAMES, image_folder, load
from chita.data.download import Progress
from chita.data.preprocessing import Preprocessing
from chita.data.text import Encode, read_tokens
from chita.errors import ChitaError
from chita.references.python_object import FORMS, is_reference, name_missing
from chita.references.samples import load_samples
from chita.zoo.networks import Network

IMAGE_FOLDER = "imagefolder:"
TEXT = "text:"  # the file of a text, for networks with a tokenizer


def pick_data(network: Network, given: str | None, *, shipped: bool) -> str:
    """Return the name of the data, or by default the data set that belongs to the weights.

    Args:
        network: the network.
        given: the user's choice, if any.
        shipped: whether the weights are those that ship with chita.

    Raises:
        ChitaError: the network cannot take these data, or has no data of its own.
    """
    if given is not None and is_own(given):
        return given
    if network.data is None:
        return _pick_for_reference(network, given)
    if network.preprocessing is not None:
        if given is None or not given.startswith(IMAGE_FOLDER):
            raise ChitaError(
                f"{network.name} takes images of {network.data}, which chita cannot download: pass "
                f"data_name (--data) {IMAGE_FOLDER}DIR or {FORMS}, got {given or 'none'}"
            )
        return given
    embedded = [] if network.embedded is None else [network.embedded.data]
    if given is None:
        return embedded[0] if shipped and embedded else network.data
    if given not in (network.data, *embedded):
        fitting = " or ".join([network.data, *embedded])
        raise ChitaError(
            f"{network.name} takes data_name (--data) {fitting}, or {FORMS}, got {given!r}"
        )
    return given


def is_own(name: str) -> bool:
    """Return whether a name is a reference to a user's own data."""
    return is_reference(name) and not name.startswith((IMAGE_FOLDER, TEXT))


def _pick_for_reference(network: Network, given: str | None) -> str:
    valid = ", ".join(
        [
            *NAMES,
            *([f"{IMAGE_FOLDER}DIR"] if network.preprocessing is not None else []),
            *([f"{TEXT}FILE"] if network.tokenizer is not None else []),
            FORMS,
        ]
    )
    if given is not None and given.startswith(IMAGE_FOLDER):
        _check_preprocessing(network, given)
    if given is not None and given.startswith(TEXT):
        _check_tokenizer(network, given)
    if given is None or not (given in NAMES or given.startswith((IMAGE_FOLDER, TEXT))):
        raise ChitaError(
            f"{network.name} needs data_name (--data), one of {valid}; got {given or 'none'}"
            f"{name_missing(given or '')}"
        )
    return given


def _check_preprocessing(network: Network, given: str) -> Preprocessing:
    """Return the preprocessing of a network; raise a ChitaError if it is unknown."""
    if network.preprocessing is None:
        raise ChitaError(
            f"{given} needs the preprocessing of images, which is unknown for {network.name}: read "
            f"the images in Python, and pass {FORMS}"
        )
    return network.preprocessing


def _check_tokenizer(network: Network, given: str) -> Callable[[], Encode]:
    """Return the tokenizer of a network; raise a ChitaError if it has none."""
    if network.tokenizer is None:
        raise ChitaError(
            f"{given} needs a tokenizer, which {network.name} does not have: give a folder of "
            f"Hugging Face (hf:FOLDER), or convert the text in Python, and pass {FORMS}"
        )
    return network.tokenizer


def load_data(
    name: str,
    network: Network,
    *,
    val_split: float | None,
    seed: int,
    progress: Progress | None = None,
) -> Any:
    """Return the images or the tokens of a name, or the data of a reference as they are."""
    if is_own(name):
        return load_samples(name)
    if name.startswith(TEXT):
        encode = _check_tokenizer(network, name)()
        return read_tokens(Path(name.removeprefix(TEXT)), encode)
    if not name.startswith(IMAGE_FOLDER):
        return load(name, progress=progress)
    return image_folder(
        name.removeprefix(IMAGE_FOLDER),
        _check_preprocessing(network, name),
        val_split=val_split,
        seed=seed,
        classes=network.classes,
    )
