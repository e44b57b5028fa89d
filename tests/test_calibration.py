"""How the calibration samples are divided into rows of A and those held out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from chita.calibration import divide_samples
from chita.config import PruneConfig
from chita.stream import SampleStream
from chita.weights import Weights

from .pruning import Again, Watch, cut, points, tiny
from .pruning import prune_quietly as prune


def test_held_out_samples_are_never_in_the_gradients() -> None:
    model, (x, t) = tiny(), points(50)
    watch = Watch(model)
    prune(model, cut((x, t), 7), ridge="auto", batch=4, stages=3)
    seen: dict[bool, set[float]] = {True: set(), False: set()}
    for inputs, gradients in zip(watch.inputs, watch.with_gradients, strict=True):
        seen[gradients].update(inputs[:, 0].tolist())
    assert len(seen[False]) == 10  # a fifth of 50
    assert len(seen[True]) == 40  # 10 rows a stage go round all others
    assert not seen[True] & seen[False]


def test_a_fixed_ridge_holds_nothing_out() -> None:
    model, (x, t) = tiny(), points(50)
    watch = Watch(model)
    prune(model, cut((x, t), 7), batch=5)
    *stages, counted = watch.with_gradients
    assert all(stages) and not counted  # at the end, the multiply-adds of one sample
    assert {value for inputs in watch.inputs for value in inputs[:, 0].tolist()} == set(
        x[:, 0].tolist()
    )


@pytest.mark.parametrize(
    ("data", "batch", "samples", "ridge", "rows"),
    [
        (50, 7, None, 0.1, 7),  # as many as the data give
        (1300, 1, None, 0.1, 1000),  # at most 1000
        (1300, 1, 1200, 0.1, 1200),  # unless more are asked for
        (1300, 1, None, "auto", 1000),  # the other 300 are held out
        (1000, 1, None, "auto", 800),  # a fifth is held out
        (2, 1, None, "auto", 1),
        (50, 7, 7, "auto", 7),  # one sample is left to hold out
    ],
)
def test_rows_of_the_matrix(data: int, batch: int, samples: Any, ridge: Any, rows: int) -> None:
    result = prune(
        tiny(), [points(data)], method="chita-bso", batch=batch, samples=samples, ridge=ridge
    )
    assert result.samples == rows


@pytest.mark.parametrize(
    ("data", "arguments", "batch", "rows", "held"),
    [
        (100, {}, 1, 80, 20),  # few: a row each, and a fifth to choose by
        (1000, {}, 1, 800, 200),
        (1000, {"samples": 700}, 1, 700, 262),  # which two samples a row could not give
        (1300, {}, 2, 520, 260),  # all are used, in fewer rows
        (2550, {"samples": 1000}, 2, 1000, 550),  # the rows asked for, and the rest held out
        (2500, {}, 2, 1000, 500),
        (10_000, {}, 8, 1000, 2000),
        (30_000, {}, 16, 1000, 4000),  # no more than 16 are averaged, nor a quarter held out
        (30_000, {"samples": 100}, 16, 100, 600),  # three eighths of few
        (30_000, {"samples": 50, "batch": 4}, 4, 50, 75),
        (30_000, {"batch": 1}, 1, 1000, 375),
    ],
)
def test_auto_picks_the_batch_and_bounds_what_is_held_out(
    data: int, arguments: dict[str, Any], batch: int, rows: int, held: int
) -> None:
    """Eight candidates then cost no more than the gradients, which cost three passes a sample."""
    found = divide_samples(
        SampleStream([points(data)]), PruneConfig(sparsity=0.5, method="auto", **arguments)
    )
    count = sum(part.size for part in found.held_out)
    assert (found.batch, found.rows, count) == (batch, rows, held)
    assert 8 * count <= 3 * rows * batch


@pytest.mark.parametrize(
    ("given", "batch", "most"),
    [(2, 4, 4), (10, 4, 10), (300, 1, 256), (1000, 300, 300)],
)
def test_no_forward_pass_takes_more_than_what_is_given_or_a_row(
    given: int, batch: int, most: int
) -> None:
    """Neither to hold out, nor to repair."""
    model = tiny()
    watch = Watch(model)
    data = Again(cut(points(1500), given))
    prune(model, data, method="auto", batch=batch, samples=2, sparsity=0.5, stages=1)
    forward = [
        len(inputs)
        for inputs, gradients in zip(watch.inputs, watch.with_gradients, strict=True)
        if not gradients
    ]
    assert max(forward) <= most
    found = divide_samples(SampleStream(data), PruneConfig(sparsity=0.5, batch=batch))
    assert found.at_once == most and found.held_out[0].size == most


@pytest.mark.parametrize("size", [1, 3, 4, 13, 26])
def test_it_does_not_matter_how_the_samples_are_batched(size: int) -> None:
    together, apart = tiny(), tiny()
    prune(together, Again([points(26)]), batch=4)
    prune(apart, Again(cut(points(26), size)), batch=4)
    assert torch.equal(Weights(apart).vector(), Weights(together).vector())
