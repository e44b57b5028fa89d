"""chita.recover: what it refuses."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import chita
from chita.errors import ChitaError
from tests.support.messages import naming, says
from tests.support.pruning import (
    points,
    same,
    snapshot,
    tiny,
)
from tests.support.recovering import halved, recover


def constant(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.zeros((), dtype=outputs.dtype)


def number(outputs: torch.Tensor, targets: torch.Tensor) -> Any:
    return F.cross_entropy(outputs, targets).item()


def bad_arguments() -> list[Any]:
    teacher, wide = tiny(), nn.Linear(6, 5).double()
    inputs = points(40)[0]
    no_mask = {"2.weight": torch.ones(3, 7, dtype=torch.bool)}
    return [
        ({"teacher": wide}, naming("teacher", (1, 5), (1, 3))),
        ({"teacher": "dense"}, naming("teacher", "Module", "dense")),
        ({"teacher": tiny().float()}, naming("teacher", "float32", "float64")),
        ({"batches": [points(40)], "loss": constant}, naming("loss", "outputs", "no_grad")),
        ({"batches": [points(40)], "loss": number}, naming("loss", "scalar tensor", ".item")),
        ({}, naming("teacher", "loss")),
        ({"teacher": teacher, "loss": F.cross_entropy}, naming("teacher", "loss")),
        ({"teacher": teacher, "batches": [inputs[:1]]}, naming("batches", 2, 1)),
        ({"teacher": teacher, "batches": []}, naming("batches", "samples")),
        ({"teacher": teacher, "batches": [inputs[:1].repeat(9, 1)]}, naming("batches", "held out")),
        ({"teacher": teacher, "batches": ["text"]}, naming("batches", "text", "tokenize")),
        ({"teacher": teacher, "batches": [inputs[:, :4]]}, naming("inputs", (1, 4))),
        ({"teacher": teacher, "masks": no_mask}, naming("2.weight", (3, 8), (3, 7))),
        ({"teacher": teacher, "masks": [no_mask]}, naming("masks", "list")),
        ({"teacher": teacher, "seed": -1}, naming("seed", -1)),
        *(
            ({"teacher": teacher, "budget": bad}, naming("budget", bad))
            for bad in (0, -1, math.nan, "quick", "0 steps", True)
        ),
    ]


def test_the_model_does_not_imitate_itself() -> None:
    """Its loss is 0 from the start, so that nothing is recovered."""
    model: Any = tiny()
    for teacher in (model, nn.DataParallel(model)):
        with pytest.raises(ChitaError, match=naming("teacher", "model itself")):
            recover(model, [points(40)[0]], teacher=teacher, budget="2 steps", progress=False)


@pytest.mark.parametrize(("arguments", "message"), bad_arguments())
def test_arguments_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    """The model is not changed, not even by good masks."""
    model: Any = tiny(1)
    before = snapshot(model)
    good = {"0.weight": torch.zeros(8, 6, dtype=torch.bool)}
    given = {"batches": [points(40)[0]], "masks": good, **arguments}
    with pytest.raises(ChitaError, match=message):
        recover(model, given.pop("batches"), **given)
    assert same(snapshot(model), before)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([{"x": points(40)[0]}], naming("input", "x", "keys")),
        ((points(40)[0], None), naming("batches[1]", "NoneType", "batches[0]")),
        (["text"], naming("batches", "text", "tokenize")),
    ],
)
def test_batches_are_refused_with_the_same_remedy_as_in_prune(batches: Any, message: str) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: recover(tiny(1), batches, teacher=tiny()),
        lambda: chita.prune(tiny(1), batches, sparsity=0.5, loss="distill", progress=False),
        lambda: chita.prune(tiny(1), batches, sparsity=0.5, progress=False),
    ]
    for call in calls:
        with pytest.raises(ChitaError, match=message):
            call()


def test_targets_that_are_none_need_no_targets() -> None:
    with pytest.raises(ChitaError, match=naming("batch 0", "targets", "(inputs,)")):
        recover(tiny(1), [(points(40)[0], None)], loss="cross_entropy")


def no_masks(*names: str) -> dict[str, torch.Tensor]:
    """Masks of `tiny` that keep none of these weights, and all others."""
    return {
        name: torch.full(weight.shape, name not in names, dtype=torch.bool)
        for name, weight in tiny().named_parameters()
        if weight.ndim > 1
    }


def test_masks_that_keep_nothing() -> None:
    """Neither those that are given, nor those of a model of zeros."""
    model: Any = tiny(1)
    before = snapshot(model)
    empty = no_masks("0.weight", "2.weight")
    with pytest.raises(ChitaError, match=naming("masks", 72)):
        recover(model, [points(40)[0]], teacher=tiny(), masks=empty)
    assert same(snapshot(model), before)
    for layer in (model[0], model[2]):
        nn.init.zeros_(layer.weight)
    with pytest.raises(ChitaError, match=naming("masks", 72)):
        recover(model, [points(40)[0]], teacher=tiny())


def test_a_layer_of_which_nothing_is_kept_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Also if masks name that layer alone: the other one keeps all of its weights."""
    empty = no_masks("0.weight")
    for masks in (empty, {"0.weight": empty["0.weight"]}):
        caplog.clear()
        model: Any = tiny(1)
        recover(model, [points(40)[0]], teacher=tiny(), masks=masks)
        assert says(caplog.text, "0.weight", without="2.weight")
        assert not bool(model[0].weight.any()) and bool(model[2].weight.any())


def test_a_model_without_trainable_parameters() -> None:
    with pytest.raises(ChitaError, match=naming("requires_grad_(True)")):
        recover(tiny().requires_grad_(False), [points(40)[0]], teacher=tiny())


def test_a_teacher_that_does_not_take_the_inputs() -> None:
    model, batches = halved(tiny()), [points(80)[0]]
    for teacher in (nn.Linear(5, 3), copy.deepcopy(model).to("meta")):
        with pytest.raises(ChitaError, match=naming("teacher", type(teacher).__name__)):
            recover(model, batches, teacher=teacher)
