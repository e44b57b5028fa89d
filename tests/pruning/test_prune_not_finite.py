"""Samples, losses and gradients that are not finite get an error that names them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from chita.model.samples.stream import SampleStream
from chita.pruning.calibration import divide_samples
from chita.pruning.config import PruneConfig
from tests.support.messages import naming
from tests.support.pruning import STAGED, Again, cut, points, tiny
from tests.support.refusing import INF, NAN, refuse

NOWHERE = ("none", 0)


def places_of(x: Tensor, batch: int = 2, **keywords: Any) -> dict[int, tuple[str, int]]:
    """The part of the samples that each of them belongs to, and its place there."""
    config = PruneConfig(sparsity=0.5, batch=batch, **keywords, recover=False)
    stream = SampleStream(Again(cut((x, torch.arange(len(x))), 100)), config.seed)
    found = divide_samples(stream, config)
    rows = list(found.stream.take(found.rows * batch, 100))
    places: dict[int, tuple[str, int]] = {}
    for name, part in (("measures", found.measured), ("chooses", found.held_out), ("A", rows)):
        numbers = [int(number) for piece in part for number in piece.content[1]]
        places |= {number: (name, place) for place, number in enumerate(numbers)}
    return places


def spoil(
    change: Callable[[Tensor], object],
    wanted: Callable[[str, int], bool],
    size: int = 24,
    **keywords: Any,
) -> tuple[tuple[Tensor, Tensor], int]:
    """Change a sample in place, such a one that is at a wanted place then: its content decides
    where. Gives all of them, and that place."""
    for seed in range(5):
        x, t = points(size, seed=seed)
        many = x.clone()
        for row in many[::2]:
            change(row)
        guess = places_of(many, **keywords)  # those changed are about there when changed alone
        likely = [number for number in range(0, size, 2) if wanted(*guess.get(number, NOWHERE))]
        for number in dict.fromkeys((*likely, *range(size))):
            x, t = points(size, seed=seed)
            change(x[number])
            part, place = places_of(x, **keywords).get(number, NOWHERE)
            if wanted(part, place):
                return (x, t), place
    raise AssertionError("no sample is there")


def is_in_a(part: str, place: int) -> bool:
    return part == "A" and place > 2


HOLDING = [("chita++", 0.1), ("chita++", "auto"), ("auto", 0.1), ("auto", "auto")]


@pytest.mark.parametrize(("method", "ridge"), HOLDING)
@pytest.mark.parametrize("bad", [NAN, INF])
def test_inputs_that_are_not_finite(method: str, ridge: Any, bad: float) -> None:
    pair, place = spoil(lambda x: x[2:3].fill_(bad), is_in_a, method=method, ridge=ridge)
    model = nn.Sequential(tiny()[0], nn.ReLU(), tiny()[2])
    message, batches = naming("loss", f"row {place // 2}", NAN), Again([pair])
    refuse(message, model=model, batches=batches, method=method, ridge=ridge)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("chooses", naming("held-out loss", NAN, re.compile("candidate"))),
        ("measures", naming("held-out loss", NAN, "stage 1")),
    ],
)
def test_held_out_inputs_that_are_not_finite(part: str, message: str) -> None:
    pair, _ = spoil(lambda x: x[2:3].fill_(NAN), lambda found, _: found == part)
    refuse(message, batches=Again([pair]))
    refuse(message, batches=Again([pair]), method="auto", ridge=0.1)
    for floor in ({"max_loss_increase": 1.0}, {"min_accuracy": 2.0}):
        refuse(message, batches=Again([pair]), method="auto", **floor)


@pytest.mark.parametrize(
    ("half", "message"),
    [
        (0, naming("held-out loss", NAN, "stage 1")),
        (1, naming("held-out loss", NAN, re.compile("candidate"))),
    ],
)
def test_either_half_of_many_held_out_inputs_is_not_finite(half: int, message: str) -> None:
    keywords: dict[str, Any] = {"method": "auto", "samples": 80, "batch": 100}
    pair, _ = spoil(
        lambda x: x[2:3].fill_(NAN),
        lambda part, place: part == "chooses" and place // 100 % 2 == half,
        size=12_000,
        **keywords,
    )
    refuse(message, batches=Again(cut(pair, 100)), stages=1, **keywords)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("mse", naming("loss", "'mse'")),
        (lambda y, t: y.square().mean(1), naming("loss", "scalar", "(2,)")),
        (lambda y, t: 0.5, naming("loss", "scalar", "float")),
        (lambda y, t: y.mean().item(), naming("loss", "scalar", ".item()")),
        (lambda y, t: y.mean().detach(), naming("loss", "prunable")),
        (
            lambda y, t: functional.mse_loss(y, t),
            naming("loss", "outputs", "(2, 3)", "targets", "(2,)", "RuntimeError"),
        ),
        (lambda y, t: {}["x"], naming("loss", "outputs", "KeyError: 'x'")),
        (lambda y, t: y.mean() * NAN, naming("loss", "row 0", NAN)),
        (lambda y, t: y.mean() + INF, naming("loss", "row 0", INF)),
        (
            lambda y, t: y.mean() + torch.where(t.sum() == 9, INF, 0.0),
            naming("loss", "row 3", INF),
        ),
    ],
)
def test_losses(loss: Callable[[Tensor, Tensor], Any], message: str) -> None:
    for method, ridge in HOLDING:
        x, t = points(24)[0], torch.zeros(24)
        places = places_of(x, method=method, ridge=ridge)
        t[next(number for number, place in places.items() if place == ("A", 6))] = 9
        refuse(message, batches=Again([(x, t)]), loss=loss, method=method, ridge=ridge)


@pytest.mark.parametrize(("method", "ridge"), HOLDING)
def test_gradients_that_are_not_finite(method: str, ridge: Any) -> None:
    pair, place = spoil(Tensor.zero_, is_in_a, method=method, ridge=ridge)
    model = nn.Sequential(nn.Linear(6, 3, bias=False)).double()

    def root(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.abs().sqrt().mean()  # finite at zero, its derivative is not

    message = naming("gradients", "0.weight", f"row {place // 2}")
    batches = Again([pair])
    refuse(message, model=model, batches=batches, loss=root, method=method, ridge=ridge)


@pytest.mark.parametrize("method", ["chita-cd", "chita-bso", *STAGED])
def test_gradients_too_large_to_compute_with(method: str) -> None:
    def huge(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().mean() * 1e200

    refuse(naming(re.compile("finite")), loss=huge, ridge=0.1, method=method)
