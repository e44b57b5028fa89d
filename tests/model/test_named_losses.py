"""Losses by name, and the losses of torch.nn: the targets are fitted to the outputs."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor, nn
from torch.nn import functional

from chita.errors import ChitaError
from chita.model.losses import cross_entropy, mean_loss, row_losses
from chita.model.named_losses import (
    DISTILLED,
    LOSSES,
    TorchLoss,
    compares_classes,
    resolve_loss,
)
from tests.curvature.truth import labels, normal
from tests.support.messages import naming

# The name, the module of torch.nn that defines it, and the targets of outputs (12, 3).
VALUES: list[tuple[str, nn.Module, Tensor]] = [
    ("bce_with_logits", nn.BCEWithLogitsLoss(), (normal(12, 3) > 0).double()),
    ("huber", nn.HuberLoss(), normal(12, 3)),
    ("kl_div", nn.KLDivLoss(reduction="batchmean"), normal(12, 3).softmax(1)),
    ("l1", nn.L1Loss(), normal(12, 3)),
    ("mse", nn.MSELoss(), normal(12, 3)),
    ("poisson_nll", nn.PoissonNLLLoss(), normal(12, 3).exp()),
    ("smooth_l1", nn.SmoothL1Loss(), normal(12, 3)),
    ("soft_margin", nn.SoftMarginLoss(), normal(12, 3).sign()),
]
CLASSES: list[tuple[str, nn.Module, Tensor]] = [
    ("cross_entropy", nn.CrossEntropyLoss(), labels(12)),
    ("multi_margin", nn.MultiMarginLoss(), labels(12)),
    ("nll", nn.NLLLoss(), labels(12)),
]


def by_name(name: str) -> Any:
    found = resolve_loss(name)
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "module", "targets"), VALUES + CLASSES)
def test_a_name_is_the_loss_of_torch(name: str, module: nn.Module, targets: Tensor) -> None:
    outputs = normal(12, 3)
    expected = module(outputs, targets)
    assert by_name(name)(outputs, targets) == expected
    assert by_name(name)({"logits": outputs}, targets) == expected
    wrapped = resolve_loss(module)
    assert isinstance(wrapped, TorchLoss)
    assert wrapped(outputs, targets) == expected
    each = row_losses(by_name(name), outputs, targets, rows=4)
    parts = [module(outputs[i : i + 3], targets[i : i + 3]) for i in range(0, 12, 3)]
    assert each.tolist() == pytest.approx([part.item() for part in parts])


def test_rows_of_labels_whose_memory_is_strided() -> None:
    outputs, targets = normal(4, 3, 5), labels(20).view(5, 4).T
    parts = [functional.cross_entropy(outputs[i : i + 2], targets[i : i + 2]) for i in (0, 2)]
    assert row_losses(None, outputs, targets, rows=2).tolist() == pytest.approx(
        [part.item() for part in parts]
    )


def test_every_name_is_tested() -> None:
    assert {name for name, *_ in VALUES + CLASSES} | {"bce", *DISTILLED} == set(LOSSES)


def test_probabilities() -> None:
    outputs, targets = normal(12, 3).sigmoid(), (normal(12, 3) > 0).long()
    assert by_name("bce")(outputs, targets) == nn.BCELoss()(outputs, targets.double())
    with pytest.raises(ChitaError, match=naming("loss", "(12, 3)")):
        mean_loss(nn.Linear(3, 3).double(), [(normal(12, 3), targets)], by_name("bce"))


@pytest.mark.parametrize("name", [name for name, *_ in VALUES])
def test_one_column_of_targets_is_not_broadcast(name: str) -> None:
    """Torch broadcasts (B, 1) and (B,) to (B, B)."""
    outputs, targets = normal(12, 1), normal(12, 1).sigmoid().round()
    expected = by_name(name)(outputs, targets)
    assert by_name(name)(outputs, targets[:, 0]) == expected
    assert by_name(name)(outputs[:, 0], targets) == pytest.approx(expected)
    assert by_name(name)(outputs, targets.long()) == expected
    assert by_name(name)(outputs, targets.float()) == expected


@pytest.mark.parametrize("name", [name for name, *_ in CLASSES])
def test_one_column_of_labels(name: str) -> None:
    outputs, targets = normal(12, 3), labels(12)
    assert by_name(name)(outputs, targets[:, None]) == by_name(name)(outputs, targets)
    images, masks = normal(2, 3, 4, 5), (normal(2, 4, 5) > 0).long()
    if name != "multi_margin":
        assert by_name(name)(images, masks[:, None]) == by_name(name)(images, masks)


def test_targets_of_another_shape_are_not_broadcast() -> None:
    for shape in [(12, 3), (12, 2), (1,), (12, 1, 3)]:
        with pytest.raises(ChitaError, match=naming("mse", "(12, 1)", str(shape))):
            by_name("mse")(normal(12, 1), normal(*shape))
    with pytest.raises(ChitaError, match=naming("bce_with_logits", "(12,)", "cross_entropy")):
        by_name("bce_with_logits")(normal(12, 2), labels(12))


def test_options_of_a_module_are_kept() -> None:
    outputs, targets = normal(12, 3), labels(12)
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    expected = functional.cross_entropy(outputs, targets, label_smoothing=0.1)
    found: Any = resolve_loss(smooth)
    assert found(outputs, targets[:, None]) == expected
    assert expected != functional.cross_entropy(outputs, targets)


def test_functions_of_the_user_are_left_alone() -> None:
    class Own(nn.MSELoss):
        pass

    def own(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean()

    module = Own()
    assert resolve_loss(own) is own
    assert resolve_loss(module) is module
    assert compares_classes(own) is None


def test_what_is_compared() -> None:
    assert resolve_loss("cross_entropy") is cross_entropy
    assert all(compares_classes(by_name(name)) for name, *_ in CLASSES)
    assert not any(compares_classes(by_name(name)) for name, *_ in VALUES)
    assert [resolve_loss(name) for name in (None, *DISTILLED)] == [None, None, None]


@pytest.mark.parametrize(
    ("loss", "parts"),
    [
        ("mse_loss", ["mse_loss", "mse"]),
        ("CrossEntropy", ["CrossEntropy", "cross_entropy"]),
        ("", ["cross_entropy"]),
        (5, [5]),
        ([], [[]]),
        (nn.CrossEntropyLoss, ["CrossEntropyLoss()"]),
    ],
)
def test_what_is_no_loss(loss: Any, parts: list[Any]) -> None:
    with pytest.raises(ChitaError, match=naming("loss", *parts)):
        resolve_loss(loss)


def test_one_output_has_no_classes() -> None:
    for targets in (labels(12), normal(12), normal(12, 1)):
        with pytest.raises(ChitaError, match=naming("(12, 1)", "bce_with_logits", "mse")):
            cross_entropy(normal(12, 1), targets)
