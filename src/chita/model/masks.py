"""Masks by parameter name: read off the zeros of a model, checked and applied."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from chita.errors import ChitaError, closest
from chita.model.checks import check_module, check_not_sharded, check_values
from chita.model.forward import unwrapped
from chita.model.weights import Patterns, choose_parameters

logger = logging.getLogger(__name__)


def masks_of(
    model: nn.Module, include: Patterns = None, exclude: Patterns = None
) -> dict[str, Tensor]:
    """Return masks that are False where the prunable weights of a model are zero.

    Args:
        model: Any module, plain or wrapped by torch.compile, DistributedDataParallel or
            AveragedModel. The masks have the names of the plain module.
        include: Glob pattern(s) of parameter names to read, as in `chita.prune`; by default the
            weights that `chita.prune` would prune.
        exclude: Glob pattern(s) of parameter names to leave out.

    Returns:
        A bool tensor for each parameter that has zeros, by name; none for a dense model. These are
        masks for `chita.keep_masks`, `chita.apply_masks` and `chita.recover`.

    Raises:
        ChitaError: The model has no prunable weights, or a pattern matches none.
    """
    check_module(model)
    model = unwrapped(model)
    check_not_sharded(model)
    weights = choose_parameters(model, include, exclude)
    check_values(weights.items())
    kept = {name: weight.detach() != 0 for name, weight in weights.items()}
    masks = {name: mask for name, mask in kept.items() if not bool(mask.all())}
    warn_of_empty(masks)
    return masks


def warn_of_empty(masks: Mapping[str, Tensor]) -> None:
    """Log a warning for each mask that keeps nothing.

    The layer was pruned completely, or initialised with zeros as in an adapter.
    """
    for name, mask in masks.items():
        if not bool(mask.any()):
            logger.warning("the mask of %s keeps none of its weights, which all stay zero", name)


@torch.no_grad()
def apply_masks(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Zero the weights of `model` where `masks` (parameter name -> bool tensor) are False.

    Every mask is checked before any weight is changed. The names may be those of the model or of
    the module that torch.compile, DistributedDataParallel or AveragedModel wraps.
    """
    for parameter, mask in check_masks(model, masks):
        # A product would turn negative weights into -0.0, which a packed file would store.
        parameter.masked_fill_(~mask, 0.0)


def check_masks(model: nn.Module, masks: Mapping[str, Tensor]) -> list[tuple[nn.Parameter, Tensor]]:
    """Return parameters and their masks, on one device; raise a ChitaError if one does not fit."""
    check_module(model)
    if not isinstance(masks, Mapping):
        raise ChitaError(
            "masks must be a dict of parameter names to bool tensors, such as the .masks of a "
            f"PruneResult, got {type(masks).__name__}"
        )
    parameters = dict(model.named_parameters(remove_duplicate=False))
    by_plain_name = {_plain(name): parameter for name, parameter in parameters.items()}
    found = []
    for name, mask in masks.items():
        parameter = parameters.get(name, by_plain_name.get(_plain(str(name))))
        if parameter is None:
            near = closest(str(name), parameters)
            hint = f"; did you mean {near!r}?" if near else ""
            raise ChitaError(f"masks name {name!r}, which is not a parameter of the model{hint}")
        _check_mask(name, mask, parameter.shape)
        found.append((parameter, mask.to(parameter.device)))
    return found


def _plain(name: str) -> str:
    """Return a parameter name without the parts that wrappers such as torch.compile add."""
    name = name.replace("_orig_mod.", "")
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return name


def _check_mask(name: str, mask: Any, shape: torch.Size) -> None:
    got = type(mask).__name__
    if isinstance(mask, Tensor):
        if mask.dtype == torch.bool and mask.shape == shape:
            return
        got = f"{mask.dtype} of shape {tuple(mask.shape)}"
    raise ChitaError(
        f"the mask of {name!r} must be a bool tensor of shape {tuple(shape)}, got {got}"
    )
