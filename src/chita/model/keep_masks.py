"""Keep pruned weights at zero while an optimizer of the user trains the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from chita.errors import ChitaError
from chita.model.masks import check_masks, masks_of
from chita.model.ties import memory_of

logger = logging.getLogger(__name__)


class MaskHook:
    """Masks that are applied after each step of an optimizer, until `release`.

    The averages of the optimizers for pruned weights are set to zero, too, so that a weight that
    grows back later starts without momentum. Modules are not wrapped and keys are not renamed.

    Args:
        masked: parameters and their bool masks, which are True where a weight is kept.
        optimizers: the optimizers of these parameters.
    """

    def __init__(
        self, masked: Sequence[tuple[Tensor, Tensor]], optimizers: Sequence[Optimizer]
    ) -> None:
        self._parameters = [parameter for parameter, _ in masked]
        self._factors = [mask.to(parameter, copy=True) for parameter, mask in masked]
        self._optimizers = optimizers
        self._hooks = [o.register_step_post_hook(lambda *_: self.apply()) for o in optimizers]

    @torch.no_grad()
    def apply(self) -> None:
        """Set the pruned weights and the averages of the optimizers for them to zero."""
        if not self._parameters:
            return
        # The model may have moved to another device or type since the last step.
        pairs = zip(self._factors, self._parameters, strict=True)
        self._factors = [factor.to(parameter) for factor, parameter in pairs]
        torch._foreach_mul_(self._parameters, self._factors)
        torch._foreach_add_(self._parameters, 0.0)  # turns -0.0, which packed files store, into 0.0
        averages = list(self._averages())
        if averages:
            torch._foreach_mul_(*map(list, zip(*averages, strict=True)))

    def _averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the numbers of the optimizers that have the shape of a parameter, with factors.

        Averages of 8 bits are codes, not numbers: they stay, which does not affect the zeros.
        """
        pairs = zip(self._parameters, self._factors, strict=True)
        for (parameter, factor), optimizer in product(pairs, self._optimizers):
            for value in optimizer.state.get(parameter, {}).values():
                if _is_average(value, parameter):
                    yield value, factor.to(value)

    def release(self) -> None:
        """Remove the hooks; the masks are no longer applied."""
        for hook in self._hooks:
            hook.remove()


def _is_average(value: Any, parameter: Tensor) -> bool:
    same_shape = isinstance(value, Tensor) and value.shape == parameter.shape
    return same_shape and value.is_floating_point()


@contextmanager
def keep_masks(
    model: nn.Module, *optimizers: Optimizer, masks: Mapping[str, Tensor] | None = None
) -> Iterator[None]:
    """Keep the pruned weights of a model at zero while a training loop of your own trains it.

    A hook sets the pruned weights, and what the optimizer stores for them, to zero after each
    step. It works with any optimizer, and is removed at the end, also after an error. Neither the
    model nor the keys of its state change.

    Args:
        model: The pruned module, plain or wrapped by torch.compile or DistributedDataParallel.
        optimizers: The optimizer, or all optimizers, that update the model in the context.
        masks: Parameter name -> bool tensor, True where a weight is kept, such as the `masks` of a
            `PruneResult`. By default those of `chita.masks_of(model)`: weights that are zero now
            stay zero.

    Raises:
        ChitaError: A mask does not fit, the model has no zeros, or the optimizer is not that of
            the model.
    """
    if masks is None:
        masks = masks_of(model)
        if not masks:
            raise ChitaError(
                "model has no zeros among its prunable weights, so there is nothing to keep: prune "
                "it first, or pass masks, such as the .masks of a PruneResult"
            )
    masked = check_masks(model, masks)
    hook = MaskHook(masked, _check_optimizers(masks, masked, optimizers))
    try:
        hook.apply()
        yield
        _warn_of_changes(masks, masked)
    finally:
        hook.release()
        hook.apply()


def innermost(optimizer: Any) -> Any:
    """Return the optimizer inside a wrapper of accelerate or Lightning, which may run no hooks."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    return optimizer


def _check_optimizers(
    masks: Mapping[str, Tensor],
    masked: Sequence[tuple[nn.Parameter, Tensor]],
    optimizers: Sequence[Optimizer],
) -> list[Optimizer]:
    """Return the optimizers without wrappers; one of them must update a masked weight, if any."""
    found = [innermost(optimizer) for optimizer in optimizers]
    wrong = [type(each).__name__ for each in found if not isinstance(each, Optimizer)]
    if wrong or not found:
        raise ChitaError(
            "keep_masks needs the torch.optim.Optimizer of the model, or several one after the "
            f"other, got {', '.join(wrong) or 'none'}; write keep_masks(model, optimizer) or "
            "keep_masks(model, optimizer, masks=masks)"
        )
    updated = {
        memory_of(p) for each in found for group in each.param_groups for p in group["params"]
    }
    trained = [parameter for parameter, _ in masked if parameter.requires_grad]
    if trained and not any(memory_of(parameter) in updated for parameter in trained):
        raise ChitaError(
            f"the optimizer updates none of the masked weights {', '.join(list(masks)[:4])}: pass "
            "the optimizer of this model, made after the model was loaded"
        )
    return found


def _warn_of_changes(
    masks: Mapping[str, Tensor], masked: Sequence[tuple[nn.Parameter, Tensor]]
) -> None:
    """Warn of pruned weights that are not zero, though the hook has set them to zero."""
    changed = [
        name
        for name, (parameter, mask) in zip(masks, masked, strict=True)
        if bool(parameter.detach().masked_fill(mask.to(parameter.device), 0.0).any())
    ]
    if changed:
        logger.warning(
            "pruned weights of %s are not zero at the end of keep_masks, and are set to zero now: "
            "something other than the given optimizers has changed them; pass all optimizers of "
            "the model",
            ", ".join(changed),
        )
