"""Which supports a run may have: any, those of a pattern, or those within limits of layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from chita.model.weights import Weights
from chita.pruning.allocation import allocate, layer_limits, sparsity_of
from chita.pruning.config import PruneConfig, kept_weights
from chita.pruning.patterned import Patterned
from chita.solver.constraints.constraint import ANY_SUPPORT, Constraint
from chita.solver.constraints.n_of_m import Groups


def within_limits(config: PruneConfig, weights: Weights) -> PruneConfig:
    """With a floor the sparsity is the most that is tried: then no more than layers allow.

    Args:
        config: what was asked for.
        weights: of `choose_weights`.
    """
    if config.floor is None:
        return config
    least, _ = layer_limits(_shapes(weights), config.allocation, config.at_least, config.at_most)
    if kept_weights(weights.size, config.sparsity) >= sum(least):
        return config
    return replace(config, sparsity=sparsity_of(sum(least), weights.size))


class Supports:
    """What the configuration asks of the supports, over the weights of a model.

    Args:
        model: whose weights they are.
        weights: of `choose_weights`, p in all.
        config: what was asked for.
    """

    def __init__(self, model: nn.Module, weights: Weights, config: PruneConfig) -> None:
        self._weights = weights
        self._patterned: Patterned | None = None
        if config.pattern is not None:
            self._patterned = Patterned(model, weights, config.pattern)
        self._allocation = allocate(
            _shapes(weights),
            kept_weights(weights.size, config.sparsity),
            rule=config.allocation,
            at_least=config.at_least,
            at_most=config.at_most,
        )

    @property
    def any(self) -> bool:
        """Whether any k weights will do."""
        return self._patterned is None and self._allocation is None

    @property
    def units(self) -> tuple[int, ...] | None:
        """How many weights at a time each layer may be cut into."""
        return None if self._patterned is None else self._patterned.units

    def kept(self, sparsity: float) -> int:
        """k, the weights that a stage keeps."""
        k = kept_weights(self._weights.size, sparsity)
        return k if self._patterned is None else self._patterned.kept(k)

    def constraint(self, k: int) -> Constraint:
        """Which supports a stage may have that keeps k weights."""
        if self._patterned is not None:
            return self._patterned.constraint
        if self._allocation is None:
            return ANY_SUPPORT
        least, most = self._allocation.stage(k)
        return Groups.in_a_row(self._allocation.sizes, least, most, self._weights.device)

    def group_counts(self, kept: Tensor) -> dict[int, int] | None:
        """How many groups of the pattern keep 0, 1, ... of their weights; None without a pattern.

        Args:
            kept: (p,) bool.
        """
        return None if self._patterned is None else self._patterned.counts(kept)


def _shapes(weights: Weights) -> Mapping[str, torch.Size]:
    return {weight.name: weight.parameter.shape for weight in weights}
