"""What A must be: plain autograd, one mini-batch after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.curvature.fisher import Gradients, gradient_matrix
from chita.model.samples.stream import SampleStream
from chita.model.weights import Patterns, Weights
from tests.support.messages import says


class Messages(logging.Handler):
    """Keeps what chita.gradients logs; use as a context."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def __enter__(self) -> Messages:
        logger = logging.getLogger("chita.curvature")
        self._level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("chita.curvature")
        logger.setLevel(self._level)
        logger.removeHandler(self)


def brute_force(
    model: nn.Module,
    weights: Weights,
    inputs: Tensor,
    targets: Tensor,
    batch: int,
    loss: Callable[[Any, Any], Tensor] = functional.cross_entropy,
) -> tuple[Tensor, Tensor]:
    """A (n, p) and the losses (n,) of all mini-batches, the model as it stands."""
    rows, losses = [], []
    for x, t in zip(inputs.split(batch), targets.split(batch), strict=True):
        value = loss(model(x), t)
        gradients = torch.autograd.grad(
            value, [weight.parameter for weight in weights], materialize_grads=True
        )
        rows.append(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        losses.append(value.detach())
    return torch.stack(rows), torch.stack(losses)


def assert_right(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    batch: int = 1,
    loss: Callable[[Any, Any], Tensor] | None = None,
    include: Patterns = "*",
    row_by_row: tuple[object, ...] = (),
) -> Gradients:
    """A of the float64 model equals brute force, the fast way unless the log must name a cause."""
    model.double()
    weights = Weights(model, include=include)
    stream = SampleStream([(inputs, targets)])
    with Messages() as messages:
        found = gradient_matrix(
            model, weights, stream, rows=len(inputs) // batch, batch=batch, loss=loss
        )
    assert len(messages.texts) == bool(row_by_row)
    assert all(says(text, *row_by_row) for text in messages.texts)
    truth, losses = brute_force(
        model.eval(), weights, inputs, targets, batch, loss or functional.cross_entropy
    )
    torch.testing.assert_close(found.matrix.whole().t(), truth, rtol=1e-9, atol=1e-11)
    assert truth.abs().max() > 1e-6
    assert abs(found.loss - losses.mean().item()) < 1e-9
    return found


def head(features: int, classes: int = 3) -> nn.Module:
    """From (B, features, ...) to logits."""

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(features, classes)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.fc(x.flatten(2).mean(2) if x.ndim > 2 else x)
            return logits

    return Head()


def normal(*shape: int) -> Tensor:
    """Reproducible normal float64 numbers."""
    return torch.randn(
        shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64
    )


def labels(count: int, classes: int = 3) -> Tensor:
    """Reproducible labels."""
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(count))
