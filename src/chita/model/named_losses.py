"""Losses by name, such as "mse", and the losses of torch.nn, with targets fitted to the outputs.

Torch broadcasts outputs (B, 1) and targets (B,) to (B, B) without an error, and rejects integer
targets of a regression. Here targets are converted if their meaning is clear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from chita.errors import ChitaError, closest
from chita.model.forward import logits_of
from chita.model.losses import Loss, cross_entropy, labels_for
from chita.model.samples.arrays import IGNORED

DISTILL, DISTILL_MSE = "distill", "distill-mse"  # these compare with the outputs of a dense network
DISTILLED = (DISTILL, DISTILL_MSE)
CROSS_ENTROPY = "cross_entropy"  # the default

_CLASSES: dict[str, tuple[Callable[..., Tensor], type[nn.Module]]] = {
    CROSS_ENTROPY: (functional.cross_entropy, nn.CrossEntropyLoss),
    "multi_margin": (functional.multi_margin_loss, nn.MultiMarginLoss),
    "nll": (functional.nll_loss, nn.NLLLoss),
}
_VALUES: dict[str, tuple[Callable[..., Tensor], type[nn.Module]]] = {
    "bce": (functional.binary_cross_entropy, nn.BCELoss),
    "bce_with_logits": (functional.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss),
    "huber": (functional.huber_loss, nn.HuberLoss),
    "kl_div": (functional.kl_div, nn.KLDivLoss),
    "l1": (functional.l1_loss, nn.L1Loss),
    "mse": (functional.mse_loss, nn.MSELoss),
    "poisson_nll": (functional.poisson_nll_loss, nn.PoissonNLLLoss),
    "smooth_l1": (functional.smooth_l1_loss, nn.SmoothL1Loss),
    "soft_margin": (functional.soft_margin_loss, nn.SoftMarginLoss),
}
_TORCH = {**_CLASSES, **_VALUES}

LOSSES = (*DISTILLED, *sorted(_TORCH))  # all names


@dataclass(frozen=True)
class TorchLoss:
    """A loss of torch whose targets are fitted to the outputs.

    Attributes:
        function: the function of torch, or a module of torch.nn.
        name: its name here, such as "mse".
    """

    function: Callable[[Any, Any], Tensor]
    name: str

    @property
    def classes(self) -> bool:
        """Whether the outputs are scores of classes, and the targets labels."""
        return self.name in _CLASSES

    @property
    def ignore_index(self) -> int | None:
        """The label that the loss ignores; None if it ignores none."""
        ignores = self.name in (CROSS_ENTROPY, "nll")
        return int(getattr(self.function, "ignore_index", IGNORED)) if ignores else None

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        """Compute the loss of a mini-batch."""
        outputs = logits_of(outputs)
        fit = labels_for if self.classes else self._values_for
        return self.function(outputs, fit(outputs, targets))

    def _values_for(self, outputs: Any, targets: Any) -> Any:
        """Return the targets in the shape and data type of the outputs."""
        if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)):
            return targets
        if _essential(outputs) != _essential(targets):
            raise ChitaError(
                f"loss={self.name!r} needs a target for each output, got outputs of shape "
                f"{tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}; give targets "
                f"of the shape of the outputs, or loss={CROSS_ENTROPY!r} for labels of classes"
            )
        return targets.reshape(outputs.shape).to(outputs.dtype)


def _essential(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape without dimensions of size 1, apart from that of the samples."""
    return (*tensor.shape[:1], *(size for size in tensor.shape[1:] if size != 1))


def resolve_loss(loss: Any) -> Loss | None:
    """Return the loss function that a user means; None for the default, and for distillation.

    Args:
        loss: a name of `LOSSES`, a loss of torch.nn or torch.nn.functional, another function, or
            None.

    Raises:
        ChitaError: the loss is neither a name nor a function of outputs and targets.
    """
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        raise ChitaError(
            f"loss is the class {loss.__name__}; pass an object of it: loss={loss.__name__}()"
        )
    if loss is not None and not callable(loss):
        check_loss("loss", loss)
    if loss is None or (isinstance(loss, str) and loss in DISTILLED):
        return None
    if loss == CROSS_ENTROPY:
        return cross_entropy
    for name, (function, module) in _TORCH.items():
        if loss == name:
            # torch's mean of kl_div is over all elements; the divergence is a mean over samples.
            named = partial(function, reduction="batchmean") if name == "kl_div" else function
            return TorchLoss(named, name)
        if loss is function or type(loss) is module:
            return TorchLoss(loss, name)
    found: Loss = loss
    return found


def check_loss(name: str, value: Any) -> None:
    """Raise a ChitaError unless `value` is None or a name of `LOSSES`."""
    if value is None or (isinstance(value, str) and value in LOSSES):
        return
    close = closest(value, LOSSES) if isinstance(value, str) else None
    hint = f"; {close!r} is the nearest name" if close else ""
    raise ChitaError(
        f"{name} must be a function of outputs and targets, or one of {list(LOSSES)}, got "
        f"{value!r}{hint}"
    )


def compares_classes(loss: Loss) -> bool | None:
    """Return whether a loss compares classes; None for a function of the user."""
    if isinstance(loss, TorchLoss):
        return loss.classes
    return True if loss is cross_entropy else None
