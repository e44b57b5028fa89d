"""A trained network as the command line names it: a network, a checkpoint, the folder of a run."""

from __future__ import annotations

from pathlib import Path

import torch
import yaml
from torch import Tensor, nn

from chita import zoo
from chita.cli.trained import shipped_checkpoint
from chita.errors import ChitaError
from chita.files.checkpoint import load_checkpoint
from chita.files.run_folder import CONFIG_FILE, MODEL_FILE, model_file
from chita.report.console import say
from chita.zoo import Network


def open_source(source: str, network: str | None) -> tuple[Network, nn.Module]:
    """The network and its model with trained weights, in eval mode; says which file these are of.

    Args:
        source: a checkpoint; a folder of `chita prune --out` or `chita gradual --out`; or the name
            of a network whose weights ship with chita.
        network: what the checkpoint is of; by default what the config.yaml beside it says.
    """
    path = model_file(Path(source))
    if path.is_file() and source in zoo.NETWORKS:
        raise ChitaError(
            f"{source!r} is a network, and {path} is here too: give ./{source} for that, or rename "
            "it to have the network"
        )
    if path.is_file():
        known = zoo.get(network or _network_of(path))
    elif source in zoo.NETWORKS:
        known = zoo.get(source)
        path = shipped_checkpoint(known)
    else:
        raise ChitaError(
            f"{source!r} is no checkpoint, no folder with a {MODEL_FILE} and no network; "
            f"known networks are {', '.join(zoo.NETWORKS)}"
        )
    model = known.build()
    load_checkpoint(model, path)
    say(f"{known.name} from {path}")
    return known, model.eval()


def random_images(network: Network, batch: int) -> Tensor:
    """Images of the network's size, drawn from a fixed seed: (batch, C, H, W)."""
    return torch.randn(batch, *network.input_shape, generator=torch.Generator().manual_seed(0))


def _network_of(checkpoint: Path) -> str:
    """The network of the run that the checkpoint lies in."""
    beside = checkpoint.parent / CONFIG_FILE
    try:
        return str(yaml.safe_load(beside.read_text())["network"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        raise ChitaError(
            f"which network {checkpoint} is of is not known: no {CONFIG_FILE} beside it says so; "
            f"give --network, one of {', '.join(zoo.NETWORKS)}"
        ) from None
