"""chita.prune, chita.recover and chita.sensitivity with the losses of torch, by name or object."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita import ChitaError
from tests.support.messages import naming
from tests.support.pruning import cut, numbers, points, prune_quietly, same, seeded, snapshot, tiny


def one_output() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))).double()


def pruned(model: nn.Module, pair: tuple[Tensor, Tensor], loss: Any) -> dict[str, Tensor]:
    prune_quietly(model, cut(pair, 8), loss=loss, ridge="auto")
    return snapshot(model)


X, LABELS = points(40)
VALUES = X[:, :1].tanh()


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(outputs, targets)


@pytest.mark.parametrize("loss", ["mse", nn.MSELoss(), functional.mse_loss])
@pytest.mark.parametrize("targets", [VALUES, VALUES[:, 0], VALUES.float()])
def test_a_regression(loss: Any, targets: Tensor) -> None:
    """The targets may be a vector, where a function of torch would broadcast them to a matrix."""
    expected = pruned(one_output(), (X, targets.double().view(-1, 1)), squares)
    assert same(pruned(one_output(), (X, targets), loss), expected)


def test_classes() -> None:
    expected = pruned(tiny(), (X, LABELS), None)
    assert same(pruned(tiny(), (X, LABELS), "cross_entropy"), expected)
    smooth = pruned(tiny(), (X, LABELS), nn.CrossEntropyLoss(label_smoothing=0.1))
    assert not same(smooth, expected)


def test_two_classes_with_one_output() -> None:
    targets = (LABELS > 0).long()
    expected = pruned(
        one_output(),
        (X, targets[:, None].double()),
        lambda y, t: functional.binary_cross_entropy_with_logits(y, t),
    )
    assert same(pruned(one_output(), (X, targets), "bce_with_logits"), expected)
    with pytest.raises(ChitaError, match=naming("(2, 1)", "bce_with_logits", "mse")):
        pruned(one_output(), (X, targets), None)


def test_recovery_compares_what_the_loss_compares() -> None:
    """With "mse", the outputs are features, also if the targets are integers."""
    model = seeded(lambda: nn.Linear(6, 3)).double()
    targets = (X[:, :3] * 4).long()
    result = chita.prune(
        model, cut((X, targets), 8), sparsity=0.5, loss="mse", budget="4 steps", progress=False
    )
    assert result.config.loss == "mse"
    assert result.sparsity == pytest.approx(0.5, abs=0.06)


def test_recover_by_name() -> None:
    outcomes = []
    for loss in ("mse", nn.MSELoss(), squares):
        model = one_output()
        prune_quietly(model, cut((X, VALUES), 8), method="magnitude", sparsity=0.5)
        keywords: dict[str, Any] = {"loss": loss, "budget": "5 steps", "progress": False}
        outcomes.append(chita.recover(model, cut((X, VALUES), 8), **keywords).loss_after)
    assert outcomes[0] == outcomes[1] == outcomes[2]
    with pytest.raises(ChitaError, match=naming("teacher", "loss", "mse")):
        chita.recover(one_output(), cut((X, VALUES), 8), loss="mse", teacher=one_output())
    with pytest.raises(ChitaError, match=naming("loss", "mean_squares")):
        chita.recover(one_output(), cut((X, VALUES), 8), loss="mean_squares")


def test_sensitivity_by_name() -> None:
    batches = cut((X, VALUES[:, 0]), 8)
    named = chita.sensitivity(one_output(), batches, loss="mse", sparsities=[0.5])
    expected = chita.sensitivity(one_output(), cut((X, VALUES), 8), loss=squares, sparsities=[0.5])
    assert [layer.scores for layer in named.layers] == [layer.scores for layer in expected.layers]


def test_min_accuracy_with_a_named_loss() -> None:
    result = chita.prune(
        tiny(),
        cut(points(200), 20),
        loss=nn.CrossEntropyLoss(label_smoothing=0.1),
        min_accuracy=5,
        sparsity=0.5,
        stages=2,
        recover=False,
        progress=False,
    )
    assert result.sparsity == pytest.approx(0.5, abs=0.01)
    with pytest.raises(ChitaError, match=naming("min_accuracy")):
        chita.prune(
            one_output(),
            cut((numbers(60, 6), numbers(60, 1)), 20),
            loss="mse",
            min_accuracy=50,
            recover=False,
            progress=False,
        )


def test_a_module_without_reduction() -> None:
    with pytest.raises(ChitaError, match=naming("loss", "scalar", torch.float64)):
        pruned(tiny(), (X, LABELS), nn.CrossEntropyLoss(reduction="none"))


def test_values_that_are_not_finite() -> None:
    targets = VALUES.clone()
    targets[7] = torch.nan
    with pytest.raises(ChitaError, match=naming("finite")):
        pruned(one_output(), (X, targets), "mse")
