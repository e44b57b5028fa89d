"""Find the network that a text refers to, whatever its form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chita.references import huggingface_model, timm_model
from chita.references.given_network import GivenNetwork, python_network
from chita.references.huggingface_model import huggingface_network
from chita.references.python_object import is_reference
from chita.references.timm_model import timm_network

NETWORK_FORMS = "FILE.py:NAME, MODULE:NAME, timm:NAME, hf:FOLDER or FOLDER"


def is_folder(text: str) -> bool:
    """Return whether a text is not a reference with a prefix, but the path of a folder."""
    return not is_reference(text) and Path(text).is_dir()


def resolve_network(text: str, arguments: Mapping[str, Any]) -> GivenNetwork:
    """Return the network of a reference: timm:NAME, hf:FOLDER, MODULE:NAME or FILE.py:NAME.

    A folder without a prefix is a folder of Hugging Face.

    Args:
        text: the reference.
        arguments: the arguments of the function that builds the network.
    """
    if text.startswith(timm_model.PREFIX):
        return timm_network(text, arguments)
    if text.startswith(huggingface_model.PREFIX) or is_folder(text):
        return huggingface_network(text, arguments)
    return python_network(text, arguments)
