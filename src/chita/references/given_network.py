"""A network that a user refers to, and references to Python objects that are networks."""

from __future__ import annotations

import copy
import logging
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from chita.data.preprocessing import Preprocessing
from chita.data.text import Encode
from chita.errors import ChitaError, describe_error
from chita.references.call import call_given
from chita.references.python_object import load_object

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class GivenNetwork:
    """A network that is not part of chita.

    Attributes:
        build: builds a model, whose weights a checkpoint replaces.
        build_trained: builds a model with its own trained weights; None if it needs a checkpoint.
        preprocessing: the preprocessing of images; None if it is unknown.
        channels: the channels of these images.
        reads: the files and folders of its weights, which a run must not overwrite.
        tokenizer: reads the tokenizer of the network; None if it has none.
        save: writes a pruned model into a folder in the format of the network; None for a plain
            checkpoint.
        writes: the files that `save` may write.
    """

    build: Callable[[], nn.Module]
    build_trained: Callable[[], nn.Module] | None
    preprocessing: Preprocessing | None = None
    channels: int = 3
    reads: tuple[Path, ...] = ()
    tokenizer: Callable[[], Encode] | None = None
    save: Callable[[nn.Module, Path], None] | None = None
    writes: tuple[str, ...] = ()


def python_network(text: str, arguments: Mapping[str, Any]) -> GivenNetwork:
    """Return the network of a reference MODULE:NAME or FILE.py:NAME.

    Args:
        text: the reference of an nn.Module, or of a function or class that returns one.
        arguments: the arguments of the function.
    """
    found = load_object(text)
    if isinstance(found, nn.Module):
        if arguments:
            raise ChitaError(f"{text} is a model, not a function: leave out --set")
        build = _copying(text, found)
    elif callable(found):
        build = _calling(text, found, arguments)
    else:
        raise ChitaError(
            f"{text} is of type {type(found).__name__}; name an nn.Module, or a function that "
            "returns one"
        )
    trained = _warning_of_weights(text, build) if isinstance(found, type) else build
    return GivenNetwork(build=build, build_trained=trained)


def _warning_of_weights(text: str, build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Return `build` with a warning: the constructor of a class rarely loads trained weights."""

    def build_trained() -> nn.Module:
        logger.warning(
            "%s is a class: its weights are those that its constructor sets; pass --checkpoint, or "
            "name a function that returns the trained model",
            text,
        )
        return build()

    return build_trained


def _copying(text: str, model: nn.Module) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        try:
            return copy.deepcopy(model)
        except Exception as error:
            raise ChitaError(
                f"{text} cannot be copied: {describe_error(error)}; name a function that builds it"
            ) from error

    return build


def _calling(
    text: str, function: Callable[..., Any], arguments: Mapping[str, Any]
) -> Callable[[], nn.Module]:
    earlier: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def build() -> nn.Module:
        model = call_given(text, function, arguments)
        if not isinstance(model, nn.Module):
            raise ChitaError(f"{text} returns {type(model).__name__}, not an nn.Module")
        if model in earlier:  # two networks, such as a pruned one and its teacher, would be one
            raise ChitaError(f"{text} returns the same model at each call; return a new one")
        earlier.add(model)
        return model

    return build
