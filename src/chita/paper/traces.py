"""The traces of the empirical Fisher matrix and of the Hessian, for alpha in eq:estalpha."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from chita.model.forward import device_of, evaluating
from chita.model.weights import Weights


def fisher_trace(stored: Tensor) -> float:
    """Return the trace of H = A^T A / n for A stored as (p, n)."""
    return float(stored.double().square().sum()) / stored.shape[1]


def hessian_trace(
    model: nn.Module,
    weights: Weights,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    probes: int,
    seed: int,
) -> float:
    """Estimate the trace of the Hessian of the mean cross-entropy over the prunable weights.

    This is Hutchinson's estimate: the mean of v^T H v over random sign vectors v, which are drawn
    anew for each batch.

    Args:
        model: the network; it is in eval mode during the computation.
        weights: its prunable weights.
        batches: the inputs and targets.
        probes: the number of random vectors for each batch.
        seed: the seed of the vectors.
    """
    generator = torch.Generator().manual_seed(seed)
    device = device_of(model)
    parameters = [weight.parameter for weight in weights]
    total, samples = 0.0, 0
    with evaluating(model), torch.enable_grad():
        for inputs, targets in batches:
            loss = cross_entropy(model(inputs.to(device)), targets.to(device))
            gradients = torch.autograd.grad(loss, parameters, create_graph=True)
            for _ in range(probes):
                signs = [_signs(parameter, generator) for parameter in parameters]
                products = torch.autograd.grad(gradients, parameters, signs, retain_graph=True)
                curvature = sum(
                    float((v * hv).sum()) for v, hv in zip(signs, products, strict=True)
                )
                total += curvature / probes * len(targets)
            samples += len(targets)
    return total / samples


def _signs(parameter: nn.Parameter, generator: torch.Generator) -> Tensor:
    bits = torch.randint(0, 2, parameter.shape, generator=generator)
    return (2 * bits - 1).to(parameter)
