"""The page "Add your own layer": its code runs, and its rules are right and in use."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import chita
from chita.curvature.fisher import gradient_matrix
from chita.curvature.per_sample import Call, Piece, registry
from chita.errors import ChitaError
from chita.model import layers
from chita.model.counts import multiply_adds
from chita.model.hooks import NotSeparableError
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights, weight_axes
from tests.curvature.truth import Messages, assert_right, labels, normal
from tests.support.messages import naming, says

PAGE = next((Path(__file__).parents[2] / "docs").rglob("add_a_layer.md"))
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo all registrations at the end of a test."""
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    monkeypatch.setattr(layers, "_KINDS", list(layers._KINDS))


@pytest.fixture
def page() -> dict[str, Any]:
    """The names that the page defines."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def test_the_page_runs_and_prunes(page: dict[str, Any]) -> None:
    assert len(BLOCKS) == 5
    result = page["result"]
    assert sorted(result.masks) == ["0.weight", "2.weight"]
    assert result.sparsity == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", ["CenteredLinear", "TransposedLinear"])
def test_the_rules_of_the_page_are_in_use_and_right(
    monkeypatch: pytest.MonkeyPatch, page: dict[str, Any], name: str, batch: int
) -> None:
    layer = page[name](4, 5)
    assert (
        registry.rule_for(layer)
        is page[
            {"CenteredLinear": "centered_linear", "TransposedLinear": "transposed_linear"}[name]
        ]
    )
    monkeypatch.setattr("chita.curvature.gradient_rows.any_layer", None)  # fails if it is needed
    model = nn.Sequential(layer, nn.Tanh(), nn.Linear(5, 3))
    assert_right(model, normal(6, 4), labels(6), batch=batch)


def test_the_kinds_of_the_page_state_axes_and_multiply_adds(page: dict[str, Any]) -> None:
    model = nn.Sequential(page["CenteredLinear"](4, 5), page["TransposedLinear"](5, 3))
    weights = Weights(model)
    assert [weight.name for weight in weights] == ["0.weight", "1.weight"]
    assert weight_axes(model, weights) == {"0.weight": (1, 1, 5, 4, 1), "1.weight": (1, 5, 3, 1, 1)}
    assert multiply_adds(model, torch.ones(2, 4)).dense == 2 * (20 + 15)


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Inherited(Doubled):
    pass


def doubled(call: Call, gradient: Tensor, rows: int) -> Iterator[Piece]:
    linear = registry.rule_for(nn.Linear(1, 1))
    assert linear is not None
    return linear(call, 2 * gradient, rows)


@pytest.mark.parametrize("layer", [Doubled, "Doubled", f"{__name__}.Doubled"])
def test_a_rule_by_class_by_name_and_for_subclasses_that_inherit_the_forward_pass(
    layer: type[nn.Module] | str,
) -> None:
    assert registry.rule_for(Doubled(2, 2)) is None
    assert chita.register_gradient_rule(layer, doubled) is doubled
    for kind in (Doubled, Inherited):
        assert registry.rule_for(kind(2, 2)) is doubled
        assert_right(nn.Sequential(kind(4, 3), nn.Tanh(), nn.Linear(3, 3)), normal(4, 4), labels(4))
    assert registry.rule_for(nn.Linear(2, 2)) is not doubled


def test_a_wrong_rule_is_noticed_and_not_used() -> None:
    right = rows_of(nn.Sequential(Doubled(4, 3)))
    chita.register_gradient_rule(Doubled, registry._RULES[nn.Linear])
    with Messages() as messages:
        torch.testing.assert_close(rows_of(nn.Sequential(Doubled(4, 3))), right)
    assert "0.weight" in messages.texts[0]


def misspelled(call: Call, gradient: Tensor, rows: int) -> Iterator[Piece]:
    for piece in doubled(call, gradient, rows):
        yield replace(piece, name="wieght")


def dividing(call: Call, gradient: Tensor, rows: int) -> Iterator[Piece]:
    raise ZeroDivisionError


def without_rows(call: Call, gradient: Tensor) -> Iterator[Piece]:
    return doubled(call, gradient, 4)


@pytest.mark.parametrize(
    ("rule", "parts"),
    [
        (misspelled, ("KeyError", "'wieght'")),
        (dividing, ("ZeroDivisionError",)),
        (without_rows, ("TypeError", "without_rows")),
    ],
)
def test_a_rule_that_raises_is_a_warning(
    rule: Any, parts: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """It names the class of the layer and the exception; the rows come from plain autograd."""
    right = rows_of(nn.Sequential(Doubled(4, 3)))
    chita.register_gradient_rule(Doubled, rule)
    torch.testing.assert_close(rows_of(nn.Sequential(Doubled(4, 3))), right)
    (record,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
    assert says(record.getMessage(), "row by row", "Doubled", *parts)


def test_a_built_in_rule_that_raises_is_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The layer may be one that the rule does not expect, which is not an error of the user."""
    model = nn.Sequential(nn.Linear(4, 3))
    right = rows_of(model)
    monkeypatch.setattr("chita.curvature.per_sample.linear.row_products", None)
    with Messages() as messages:
        torch.testing.assert_close(rows_of(model), right)
    assert "NoneType" in messages.texts[0]
    assert all(record.levelno < logging.WARNING for record in caplog.records)


def test_a_rule_that_finds_samples_mixed_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(call: Call, gradient: Tensor, rows: int) -> Iterator[Piece]:
        raise NotSeparableError("mixed")

    chita.register_gradient_rule(Doubled, refuse)
    with Messages() as messages:
        rows_of(nn.Sequential(Doubled(4, 3)))
    assert "mixed" in messages.texts[0]
    assert all(record.levelno < logging.WARNING for record in caplog.records)


def rows_of(model: nn.Module) -> Tensor:
    """A of four samples, with fixed weights."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(normal(*parameter.shape))
    stream = SampleStream([(normal(4, 4).float(), labels(4))])
    return gradient_matrix(model, Weights(model), stream, rows=4, batch=1).matrix.whole()


def test_a_later_kind_takes_precedence() -> None:
    model = nn.Sequential(Doubled(4, 3), nn.Linear(3, 3))
    assert [weight.name for weight in Weights(model)] == ["0.weight", "1.weight"]
    chita.register_layer(chita.LayerKind((Doubled,), weights=("weight", "bias")))
    assert [weight.name for weight in Weights(model)] == ["0.weight", "0.bias", "1.weight"]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("weights", "weight"),
        ("weights", ["weight"]),
        ("weights", (3,)),
        ("dense", "weight"),
        ("applies", True),
        ("axes", None),
        ("channel_dim", "last"),
        ("channel_dim", 1),
        ("multiplies_at", "weights"),
        ("columns", 3),
        ("is_product", True),
    ],
)
def test_a_wrong_attribute_of_a_kind_is_named(argument: str, value: Any) -> None:
    with pytest.raises(ChitaError, match=naming(argument, repr(value))):
        chita.LayerKind((Doubled,), **{argument: value})


def test_a_kind_without_classes_is_refused() -> None:
    with pytest.raises(ChitaError, match=naming("classes", "()")):
        chita.register_layer(chita.LayerKind(()))


@pytest.mark.parametrize("given", [nn.Linear(2, 2), int, 3])
def test_what_is_not_a_class_of_layers_is_refused(given: Any) -> None:
    for register in (
        lambda: chita.register_gradient_rule(given, doubled),
        lambda: chita.LayerKind((given,)),
    ):
        with pytest.raises(ChitaError, match=re.escape(repr(given))):
            register()
    with pytest.raises(ChitaError, match="kind"):
        chita.register_layer(given)
    with pytest.raises(ChitaError, match="classes"):
        chita.LayerKind(nn.Linear)  # type: ignore[arg-type]
    with pytest.raises(ChitaError, match="rule"):
        chita.register_gradient_rule(nn.Linear, 3)  # type: ignore[call-overload]
