"""Inputs of `chita recover`: the options of the pruning run, the masks and the dense network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.masks import masks_of
from chita.model.samples.fingerprint import fingerprint
from chita.zoo import Network
from chita.zoo.trained import open_trained


def with_values_of(run: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, with the values of the pruning run where none are given."""
    return {
        **given,
        "set": given["set"] or run.get("set") or {},
        "teacher": given["teacher"] or run.get("checkpoint") or run.get("teacher"),
        **_choose_data(given, run),
        **{
            name: run.get(name) if given[name] is None else given[name]
            for name in ("context", "sequences")
        },
    }


def _choose_data(given: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data, test data, val_split and seed: those given, or those of the pruning run.

    The seed divides an image folder. Another seed than that of the run would put images that the
    network was pruned with into the test set.
    """
    chosen = {name: given[name] for name in ("data", "test", "val_split")}
    if given["data"] is None:
        chosen = {name: run.get(name) if own is None else own for name, own in chosen.items()}
    used, seed = run.get("seed"), given["seed"]
    seed = (used or 0) if seed is None else seed
    if chosen["val_split"] is not None and used not in (None, seed):
        raise ChitaError(
            f"--seed {seed} with --val-split {chosen['val_split']} divides the images differently "
            f"from the run, whose seed is {used}: leave out --seed"
        )
    return {**chosen, "seed": seed}


def masks_of_zeros(network: Network, checkpoint: Path | None) -> dict[str, Tensor]:
    """Return the mask of each parameter that has zeros."""
    masks = masks_of(open_trained(network, checkpoint, with_data=False).model)
    if not masks:
        raise ChitaError(
            f"{checkpoint or network.name} has no zero weights, so nothing was pruned: give the "
            "checkpoint or the run folder of a pruned network"
        )
    return masks


def open_teacher(
    network: Network, teacher: str | None, place: torch.device, *, own: bool
) -> nn.Module:
    """Return the dense network.

    Args:
        network: the network.
        teacher: the checkpoint of its dense weights; None for those that come with the network.
        place: the device.
        own: whether the pruned weights are in a checkpoint of their own, and not those.
    """
    if teacher is None and network.embedded is None and not (own and network.build_trained):
        raise ChitaError(
            f"the dense weights of {network.name} are unknown: pass the weights before pruning as "
            "--teacher"
        )
    opened = open_trained(network, teacher, place=place, with_data=False)
    if teacher is None:
        if network.build_trained is not None and _values(opened.model) != _values(opened.build()):
            raise ChitaError(
                f"{network.name} builds other weights at each call, so those before pruning are "
                "unknown: pass them as --teacher"
            )
        return opened.model
    try:
        return opened.model
    except ChitaError as error:
        raise ChitaError(
            f"--teacher must be a checkpoint of {network.name}, got {teacher}: {error}"
        ) from error


def _values(model: nn.Module) -> str:
    return fingerprint(model.state_dict().items())
