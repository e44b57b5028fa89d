"""Find the network and the checkpoint that a user refers to, by a name, a path or a reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from chita.errors import ChitaError
from chita.files.checkpoint import read_checkpoint
from chita.files.run_folder import CONFIG_FILE, MODEL_FILE, config_beside, model_file
from chita.references import timm_model
from chita.references.huggingface_model import is_huggingface_folder
from chita.references.python_object import is_reference
from chita.references.resolve import NETWORK_FORMS
from chita.zoo.given_network import find_network
from chita.zoo.networks import NETWORKS, Network
from chita.zoo.weights import find_weights


def find_source(
    source: str, network: str | None = None, arguments: Mapping[str, Any] | None = None
) -> tuple[Network, Path | None]:
    """Return the network that `source` refers to, and its checkpoint if it is one.

    Args:
        source: see `find_trained`; the name of any network.
        network: see `find_trained`.
        arguments: see `find_trained`.
    """
    path = model_file(Path(source))
    if path.is_file() and source in NETWORKS:
        raise ChitaError(
            f"{source!r} is both a network and a path ({path}): give ./{source} for the path, or "
            "rename it to use the network"
        )
    run = (Path(source) / CONFIG_FILE).exists()  # whose network may be another one
    if network is None and not run and is_huggingface_folder(source):
        return find_network(source, arguments), None
    if path.is_file():
        return _network_of(path, network, arguments), path
    if source in NETWORKS or is_reference(source):
        if network not in (None, source):
            raise ChitaError(
                f"{source!r} is a network itself: leave out network= (--network), which names the "
                f"network of a checkpoint, got {network!r}"
            )
        return find_network(source, arguments), None
    raise ChitaError(
        f"{source!r} is neither a checkpoint, a run folder nor a known network; the networks are "
        f"{', '.join(NETWORKS)}, and references {NETWORK_FORMS}"
    )


def find_trained(
    source: str, network: str | None = None, arguments: Mapping[str, Any] | None = None
) -> tuple[Network, Path | None]:
    """Return the network and the checkpoint that `source` refers to.

    Args:
        source: a checkpoint, a run folder of `chita prune`, `chita gradual` or `chita recover`, the
            name of a network whose weights ship with chita, a folder of Hugging Face, or a
            reference (see `find_network`).
        network: the network of a checkpoint; by default the one in the config.yaml beside it.
        arguments: the arguments of the function that builds the network of a reference; by default
            those in the config.yaml.

    Returns:
        The network, and its checkpoint; None if the network is built with trained weights.
    """
    found, checkpoint = find_source(source, network, arguments)
    return found, shipped_checkpoint(found) if checkpoint is None else checkpoint


def shipped_checkpoint(network: Network) -> Path | None:
    """Return the trained weights in the package or in the cache.

    None means that the network is built with weights.
    """
    if network.build_trained is not None:
        return None
    if network.embedded is not None:
        return network.embedded.checkpoint
    folder = find_weights(network.name) if network.weights else None
    if folder is not None:
        return folder / MODEL_FILE
    way = ""
    if network.weights:
        way = f", or run `chita weights get {network.name}` first"
    elif network.name.startswith(timm_model.PREFIX):
        way = ", or --set pretrained=true to download them"
    raise ChitaError(
        f"{network.name} comes without trained weights: pass them as checkpoint= (--checkpoint)"
        f"{way}"
    )


def fitting_variant(network: Network, checkpoint: Path) -> Network:
    """Return the variant of a network whose tensors a checkpoint has; else the network itself."""
    if not network.variants:
        return network
    names = read_checkpoint(checkpoint).keys()
    for variant in network.variants:
        with torch.device("meta"):
            if variant.build().state_dict().keys() == names:
                return variant
    return network


def _network_of(checkpoint: Path, name: str | None, arguments: Mapping[str, Any] | None) -> Network:
    """Return the network of a checkpoint, by default that in the configuration beside it."""
    if name is not None:
        return find_network(name, arguments)
    run = config_beside(checkpoint)
    if run.get("network") is None:
        raise ChitaError(
            f"the network of {checkpoint} is unknown, because no {CONFIG_FILE} beside it names "
            f"one: pass network= (--network), one of {', '.join(NETWORKS)}, or {NETWORK_FORMS}"
        )
    return find_network(str(run["network"]), arguments or run.get("set"))
