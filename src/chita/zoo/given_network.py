"""The network that a user names: one of the zoo, or a reference to one of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chita.errors import ChitaError
from chita.references.python_object import is_reference, name_missing
from chita.references.resolve import NETWORK_FORMS, is_folder, resolve_network
from chita.zoo.networks import NETWORKS, Network

_BATCH_SIZE = 64  # images of unknown size in a batch


def find_network(name: str, arguments: Mapping[str, Any] | None = None) -> Network:
    """Return the network that a text names.

    Args:
        name: a network of the zoo, or a reference: FILE.py:NAME, MODULE:NAME, timm:NAME,
            hf:FOLDER, or the path of such a folder.
        arguments: the arguments of the function that builds the network of a reference.
    """
    if not isinstance(name, str):
        raise ChitaError(f"network must be a name or a reference, got {name!r:.80}")
    if name in NETWORKS:
        if arguments:
            raise ChitaError(f"{name} takes no arguments: leave out --set {', '.join(arguments)}")
        return NETWORKS[name]
    if not (is_reference(name) or is_folder(name)):
        raise ChitaError(
            f"network {name!r} is unknown; known are {', '.join(NETWORKS)}, and references "
            f"{NETWORK_FORMS}{name_missing(name)}"
        )
    given = resolve_network(name, arguments or {})
    return Network(
        name=name,
        build=given.build,
        build_trained=given.build_trained,
        data=None,
        prunable=None,
        recipe=None,
        classes=None,
        preprocessing=given.preprocessing,
        channels=given.channels,
        batch_size=_BATCH_SIZE,
        reads=given.reads,
        tokenizer=given.tokenizer,
        save=given.save,
        writes=given.writes,
    )
