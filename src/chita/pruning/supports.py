"""The supports that a run allows: any, those of a pattern, or those within limits of layers."""

from __future__ import annotations

import glob
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor, nn

from chita.errors import ChitaError
from chita.model.checks import check_model
from chita.model.layers import Axes
from chita.model.weights import Weights, check_finite, weight_axes
from chita.pruning.allocation import GLOBAL, Allocation, allocate, layer_limits, sparsity_of
from chita.pruning.config import PruneConfig, kept_weights
from chita.solver.constraints.constraint import ANY_SUPPORT, Constraint
from chita.solver.constraints.layer_counts import share_out
from chita.solver.constraints.n_of_m import Groups
from chita.solver.constraints.pattern import Pattern, first_cut, parse_pattern

logger = logging.getLogger(__name__)


def choose_weights(model: nn.Module, config: PruneConfig) -> Weights:
    """Return the weights to prune: those that the pattern, if there is one, divides.

    The other weights stay dense with a warning.

    Raises:
        ChitaError: the model has no weights to prune, or weights that are not finite; or the
            pattern divides no weight, or with strict=True not every weight.
    """
    check_model(model)
    weights = _divisible(model, Weights(model, config.include, config.exclude), config)
    check_finite(weights)
    return weights


def _divisible(model: nn.Module, weights: Weights, config: PruneConfig) -> Weights:
    """Return the weights that the pattern divides."""
    if config.pattern is None:
        return weights
    pattern, matrices = parse_pattern(config.pattern), input_matrices(model, weights)
    unfit = [name for name, m in matrices.items() if m is None or not pattern.fits(*m.shape)]
    if not unfit:
        return weights
    shapes = {weight.name: tuple(weight.parameter.shape) for weight in weights}
    listed = ", ".join(f"{name} {shapes[name]}" for name in unfit)
    if config.strict or len(unfit) == len(matrices):
        raise ChitaError(
            f"pattern={config.pattern!r} does not divide the weights {listed}; leave them out with "
            "exclude, or choose a pattern that fits" + (" or strict=False" if config.strict else "")
        )
    logger.warning("pattern %s does not divide %s: left dense", config.pattern, listed)
    excluded = config.exclude or ()
    given = (excluded,) if isinstance(excluded, str) else tuple(excluded)
    return Weights(model, config.include, (*given, *map(glob.escape, unfit)))


class Patterned:
    """A pattern over weights that it divides.

    The indices of all groups take many times the memory of the weights. They exist for one layer at
    a time, except for `constraint`.

    Args:
        model: the model.
        weights: the weights from `choose_weights`, p in total.
        name: the name of the pattern.
    """

    def __init__(self, model: nn.Module, weights: Weights, name: str) -> None:
        self.pattern, self._weights = parse_pattern(name), weights
        self._axes = tuple(weight_axes(model, weights).values())

    @cached_property
    def ids(self) -> Tensor:
        """The group of each weight, (p,)."""
        ids, start = [], 0
        for axes in self._axes:
            ids.append(start + group_ids(self.pattern, axes))
            start = int(ids[-1].max()) + 1
        return torch.cat(ids).to(self._weights.device)

    def kept(self, k: int) -> int:
        """Return how many weights are kept if k are wanted."""
        return self.pattern.kept(self._weights.size, k)

    def layer_counts(self, k: int) -> list[int]:
        """Return how many of k weights each layer keeps if all have the same sparsity."""
        unit, sizes = self.pattern.unit, self._weights.sizes
        least = [self.pattern.kept(size, 0) // unit for size in sizes]
        counts = share_out(k // unit, sizes, [size // unit for size in sizes], least)
        return [unit * count for count in counts]

    @cached_property
    def constraint(self) -> Constraint:
        """The supports that the pattern allows."""
        return self.pattern.constraint(self.ids)

    @property
    def units(self) -> tuple[int, ...]:
        """The unit of each layer: a cut at a multiple of it separates no group."""
        return tuple(first_cut(group_ids(self.pattern, axes)[None]) for axes in self._axes)

    def counts(self, kept: Tensor) -> dict[int, int]:
        """Return how many groups keep 0, 1, ... of their weights, without numbers that do not
        occur.

        Args:
            kept: (p,) bool.
        """
        found: dict[int, int] = {}
        for weight, axes in zip(self._weights, self._axes, strict=True):
            ids = group_ids(self.pattern, axes).to(kept.device)
            in_group = torch.bincount(ids[kept[weight.span]], minlength=int(ids.max()) + 1)
            for count, groups in enumerate(in_group.bincount().tolist()):
                if groups:
                    found[count] = found.get(count, 0) + groups
        return dict(sorted(found.items()))


def group_ids(pattern: Pattern, axes: Axes) -> Tensor:
    """Return the group of each weight of a layer, (size of the layer,)."""
    groups = pattern.cut(_input_matrix(axes))
    ids = torch.empty(groups.numel(), dtype=torch.int64)
    ids[groups] = torch.arange(len(groups))[:, None].expand_as(groups)
    return ids


def input_matrices(model: nn.Module, weights: Weights) -> dict[str, Tensor | None]:
    """Return the indices of each weight as a matrix (outputs, inputs); None for a vector.

    The inputs of a convolution are its kernel positions times its channels, with the channels of a
    position adjacent: (outputs, height, width, channels), as in NHWC kernels.
    """
    axes = weight_axes(model, weights)
    return {w.name: _input_matrix(axes[w.name]) if w.parameter.ndim > 1 else None for w in weights}


def _input_matrix(axes: Axes) -> Tensor:
    """Return the indices 0, 1, ... of a weight, with outputs as rows and inputs as columns."""
    places = torch.arange(math.prod(axes)).view(axes)
    by_output = places.permute(0, 2, 4, 1, 3)  # (groups, outputs, kernel, inputs)
    return by_output.flatten(0, 1).flatten(1)


def within_limits(config: PruneConfig, weights: Weights) -> PruneConfig:
    """Limit the sparsity up to which a run with a floor searches by the limits of the layers.

    Args:
        config: the options of the run.
        weights: the weights from `choose_weights`.
    """
    if config.floor is None:
        return config
    least, _ = layer_limits(_shapes(weights), config.allocation, config.at_least, config.at_most)
    if kept_weights(weights.size, config.sparsity) >= sum(least):
        return config
    return replace(config, sparsity=sparsity_of(sum(least), weights.size))


class Supports:
    """The supports that the options allow, over the weights of a model.

    Args:
        model: the model.
        weights: the weights from `choose_weights`, p in total.
        config: the options of the run.
    """

    def __init__(self, model: nn.Module, weights: Weights, config: PruneConfig) -> None:
        self._weights = weights
        self._patterned: Patterned | None = None
        if config.pattern is not None:
            self._patterned = Patterned(model, weights, config.pattern)
        self._allocation: Allocation | None = None
        if config.allocation != GLOBAL or config.at_least or config.at_most:
            self._allocation = allocate(
                _shapes(weights),
                kept_weights(weights.size, config.sparsity),
                rule=config.allocation,
                at_least=config.at_least,
                at_most=config.at_most,
            )

    @property
    def any(self) -> bool:
        """Whether any k weights are allowed."""
        return self._patterned is None and self._allocation is None

    @property
    def units(self) -> tuple[int, ...] | None:
        """The unit of each layer, at whose multiples it may be cut; None for any cut."""
        return None if self._patterned is None else self._patterned.units

    def kept(self, sparsity: float) -> int:
        """Return k, the number of weights that a stage keeps."""
        k = kept_weights(self._weights.size, sparsity)
        return k if self._patterned is None else self._patterned.kept(k)

    def constraint(self, k: int) -> Constraint:
        """Return the supports that a stage which keeps k weights may have."""
        if self._patterned is not None:
            return self._patterned.constraint
        if self._allocation is None:
            return ANY_SUPPORT
        least, most = self._allocation.stage(k)
        return Groups.in_a_row(self._allocation.sizes, least, most, self._weights.device)

    def layer_counts(self, k: int) -> list[int]:
        """Return how many of k weights each layer keeps: the same share, within its limits."""
        if self._patterned is not None:
            return self._patterned.layer_counts(k)
        sizes = self._weights.sizes
        least, most = (None, sizes) if self._allocation is None else self._allocation.stage(k)
        return share_out(k, sizes, most, least)

    def in_layer(self, axes: Axes) -> Constraint:
        """Return the supports that the pattern, if there is one, allows in a layer.

        Args:
            axes: the axes of its weight, in the order in which the weights are compared.
        """
        if self._patterned is None:
            return ANY_SUPPORT
        pattern = self._patterned.pattern
        return pattern.constraint(group_ids(pattern, axes).to(self._weights.device))

    def group_counts(self, kept: Tensor) -> dict[int, int] | None:
        """Return how many groups keep 0, 1, ... of their weights; None without a pattern.

        Args:
            kept: (p,) bool.
        """
        return None if self._patterned is None else self._patterned.counts(kept)


def _shapes(weights: Weights) -> Mapping[str, torch.Size]:
    return {weight.name: weight.parameter.shape for weight in weights}
