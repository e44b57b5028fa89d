"""A random mask, to time a network before it is pruned."""

from __future__ import annotations

import torch
from torch import nn

from chita.model.masks import apply_masks
from chita.model.weights import Patterns, Weights
from chita.pruning.prune import prune


@torch.no_grad()
def apply_random_mask(
    model: nn.Module, at: float | str, *, include: Patterns = None, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Prune a random choice of the weights of a model, in place.

    Magnitude pruning of random numbers draws the mask, with the supports that `chita.prune` allows.
    The kept weights grow so that the outputs of each layer keep their scale: activations that
    shrink from layer to layer become denormal numbers, which are slow to multiply.

    Args:
        model: any module.
        at: the share of zeros in [0, 1), or a pattern such as "2:4".
        include: glob pattern(s) of parameter names, instead of the default choice.
        seed: the seed of the choice.

    Returns:
        The masks by parameter name, as in the result of `chita.prune`.

    Raises:
        ChitaError: the model has no prunable weights, or `at` is neither a share nor a pattern.
    """
    weights = Weights(model, include)
    before = weights.vector()
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(weights.size, generator=generator).to(before)
    with weights.temporarily(drawn):
        result = prune(model, [], sparsity=at, method="magnitude", include=include, progress=False)
    apply_masks(model, result.masks)
    for weight in weights:
        if weight.name in result.masks:
            kept = result.masks[weight.name].float().mean().clamp(min=1 / weight.parameter.numel())
            weight.parameter.mul_(kept.rsqrt().to(weight.parameter))
    return result.masks
