"""Variational dropout sparsifies deep networks (Molchanov, Ashukha and Vetrov, 2017)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.optim import Optimizer

from chita.errors import ChitaError
from chita.gradual.sparsifier import Sparsifier, TrainingPlan
from chita.model.weights import Patterns, Weights
from chita.pruning.config import kept_weights
from chita.solver.constraints.constraint import keep, top_k

K1, K2, K3 = 0.63576, 1.87320, 1.48695  # the paper's approximation of the KL divergence
PRUNED_ABOVE = 3.0  # log alpha above which a weight is noise
# The learning rate of log sigma^2 over that of the weights, since its gradients are small.
SPEED = 100.0
# How often the weight of the divergence may double in a training, and its range around the start.
DOUBLINGS, RANGE = 20.0, 100.0
TINY = 1e-8  # keeps logarithms and roots finite


class VariationalDropout(Sparsifier):
    """Add Gaussian noise with a learned variance to each weight: N(w, sigma^2).

    A divergence from the log-uniform prior is added to the loss. It rises with 1 / alpha =
    w^2 / sigma^2, so that noise dominates the weights that the data do not need: log alpha > 3.
    During training, the noise is added to the outputs of the layers (local reparametrisation).

    The sparsity depends on the weight of the divergence, in theory 1 / N for N samples; Gale et al.
    tune it for each sparsity. Here it starts at that value, grows while the share of weights above
    3 is below the cubic that leads to the target, and falls while it is above.
    At the end exactly k weights remain, those with the smallest alpha. No layer is dense by rule:
    one threshold of alpha holds for all (Molchanov et al., section 4).

    Args:
        model: the model to train; its prunable weights must belong to Linear or Conv2d layers.
        optimizer: its optimizer.
        plan: the training plan.
        include: glob pattern(s) of the prunable parameters.
        start: log sigma^2 before training.
        divergence: the weight of the divergence at first, for 50,000 samples by default.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        plan: TrainingPlan,
        *,
        include: Patterns = None,
        start: float = -9.0,
        divergence: float = 2e-5,
    ) -> None:
        self.weights = Weights(model, include)
        self._plan = plan
        self._log_variance = {  # log sigma^2 by the identity of the weight
            id(weight.parameter): nn.Parameter(torch.full_like(weight.parameter, start))
            for weight in self.weights
        }
        self._rate = SPEED * optimizer.defaults["lr"]
        self._usual = divergence
        self._step = 0
        self._divergence = torch.tensor(divergence, device=self.weights.device)
        self._hooks = [
            module.register_forward_hook(self._add_noise) for module in _layers(model, self.weights)
        ]

    def groups(self) -> list[dict[str, Any]]:
        parameters = list(self._log_variance.values())
        return [{"params": parameters, "lr": self._rate, "weight_decay": 0.0}]

    def after_step(self) -> None:
        self._step += 1
        density = (self.log_alpha() <= PRUNED_ABOVE).float().mean()
        behind = density > 1 - self._plan.sparsity_at(self._step)
        factor = 2 ** (DOUBLINGS / self._plan.steps)
        self._divergence.mul_(torch.where(behind, factor, 1 / factor))
        self._divergence.clamp_(self._usual / RANGE, self._usual * RANGE)

    def penalty(self) -> Tensor:
        layers = [kl_divergence(self._log_alpha(w.parameter)).sum() for w in self.weights]
        return self._divergence * torch.stack(layers).sum()

    @torch.no_grad()
    def log_alpha(self) -> Tensor:
        """Return log(sigma^2 / w^2) of all weights, (p,)."""
        return torch.cat([self._log_alpha(weight.parameter).flatten() for weight in self.weights])

    @torch.no_grad()
    def finalize(self) -> None:
        for hook in self._hooks:
            hook.remove()
        log_alpha = self.log_alpha()
        # Magnitudes decide in top_k: the smallest alpha has the largest distance to the largest.
        kept = top_k(
            log_alpha.max() - log_alpha, kept_weights(self.weights.size, self._plan.sparsity)
        )
        self.weights.assign(keep(self.weights.vector(), kept))

    def state_dict(self) -> dict[str, Any]:
        return {
            "log_variance": [each.detach() for each in self._log_variance.values()],
            "divergence": self._divergence,
            "step": self._step,
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        torch._foreach_copy_(list(self._log_variance.values()), state["log_variance"])
        self._divergence.copy_(state["divergence"])
        self._step = state["step"]

    def _log_alpha(self, parameter: nn.Parameter) -> Tensor:
        return self._log_variance[id(parameter)] - (parameter.square() + TINY).log()

    def _add_noise(
        self, module: nn.Linear | nn.Conv2d, inputs: tuple[Tensor, ...], output: Tensor
    ) -> Tensor | None:
        """Add the noise to the outputs (local reparametrisation)."""
        if not module.training:
            return None
        variance = self._log_variance[id(module.weight)].exp()
        squared = inputs[0].square()
        if isinstance(module, nn.Linear):
            spread = F.linear(squared, variance)
        else:
            spread = module._conv_forward(squared, variance, None)
        return output + (spread + TINY).sqrt() * torch.randn_like(output)


def kl_divergence(log_alpha: Tensor) -> Tensor:
    """Return KL(N(w, alpha w^2) || log-uniform) of each weight, as in eq. (14) of the paper.

    It is 0 where alpha is infinite, and half of log 1 / alpha plus a constant where it is small.
    """
    return K1 - K1 * (K2 + K3 * log_alpha).sigmoid() + 0.5 * F.softplus(-log_alpha)


def _layers(model: nn.Module, weights: Weights) -> list[nn.Linear | nn.Conv2d]:
    """Return the layers of the weights."""
    known = {id(weight.parameter): weight.name for weight in weights}
    layers = [
        module
        for module in model.modules()
        if isinstance(module, (nn.Linear, nn.Conv2d)) and id(module.weight) in known
    ]
    missing = known.keys() - {id(layer.weight) for layer in layers}
    if missing:
        raise ChitaError(
            "variational dropout is for the weights of Linear and Conv2d layers, not for "
            f"{', '.join(known[i] for i in missing)}: leave them out with include"
        )
    return layers
