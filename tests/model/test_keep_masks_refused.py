"""What keep_masks refuses, warns of and leaves behind."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.optim import SGD

from chita.errors import ChitaError
from chita.model.keep_masks import keep_masks
from chita.model.masks import masks_of
from tests.support.keeping import pruned, train
from tests.support.messages import naming
from tests.support.pruning import same, tiny


def test_an_error_removes_the_hook_and_leaves_zeros() -> None:
    model = pruned()
    optimizer = SGD(model.parameters(), lr=0.1)
    masks = masks_of(model)
    with pytest.raises(KeyboardInterrupt), keep_masks(model, optimizer):
        train(model, optimizer)
        with torch.no_grad():
            model[0].weight += 1  # half a step
        raise KeyboardInterrupt
    assert same(masks_of(model), masks)
    assert train(model, optimizer) == [False] * 3


def test_a_copy_of_the_optimizer_or_model_has_no_hook() -> None:
    model = pruned()
    optimizer = SGD(model.parameters(), lr=0.1)
    with keep_masks(model, optimizer):
        twin, other = copy.deepcopy((model, optimizer))
    assert train(twin, other) == [False] * 3


def test_weights_that_something_else_changes_are_mentioned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = pruned()
    first, second = (SGD(model[i].parameters(), lr=0.1) for i in (0, 2))
    masks = masks_of(model)
    with keep_masks(model, first):  # the user forgot the second one
        train(model, first, second)
    assert "2.weight" in caplog.text and "0.weight" not in caplog.text
    assert same(masks_of(model), masks)


def test_frozen_layers_need_no_optimizer(caplog: pytest.LogCaptureFixture) -> None:
    model = pruned()
    model[0].requires_grad_(False)
    optimizer = SGD(model[2].parameters(), lr=0.1)
    with keep_masks(model, optimizer):
        assert train(model, optimizer) == [True] * 3
    model.requires_grad_(False)[2].bias.requires_grad_(True)
    with keep_masks(model, SGD([model[2].bias], lr=0.1)):
        pass
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], naming("keep_masks(model, optimizer)", "none")),
        ([[SGD(tiny().parameters(), lr=0.1)]], naming("Optimizer", "list")),
        ([tiny()], naming("Optimizer", "Sequential")),
        ([SGD(tiny().parameters(), lr=0.1)], naming("optimizer", "0.weight", "2.weight")),
    ],
)
def test_the_optimizer_must_be_that_of_the_model(arguments: list[Any], message: str) -> None:
    with pytest.raises(ChitaError, match=message), keep_masks(pruned(), *arguments):
        pass


def test_what_has_nothing_to_keep_is_an_error() -> None:
    model = tiny()
    optimizer: Any = SGD(model.parameters(), lr=0.1)
    with pytest.raises(ChitaError, match=naming("model", "zeros", "masks")):
        keep_masks(model, optimizer).__enter__()
    with pytest.raises(ChitaError, match=naming("model", "torch.nn.Module", "SGD")):
        keep_masks(optimizer, model).__enter__()  # type: ignore[arg-type]
    with pytest.raises(ChitaError, match=naming("masks", "3.weight")):
        keep_masks(model, optimizer, masks={"3.weight": torch.ones(2) > 0}).__enter__()
    assert not optimizer._optimizer_step_post_hooks
