"""How many samples form the rows of A and are held out, and in which batches they are read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from chita.pruning.calibration import divide_samples
from chita.pruning.config import PruneConfig
from tests.support.pruning import Again, Watch, cut, numbers, points, tiny
from tests.support.pruning import prune_quietly as prune


def test_the_floor_is_checked_on_samples_that_choose_nothing() -> None:
    stream = SampleStream([points(1000)], 0)
    found = divide_samples(
        stream, PruneConfig(sparsity=0.5, method="auto", min_accuracy=50.0, recover=False)
    )
    parts = [found.held_out, found.measured, list(stream.take(1000, 100))]
    keys = [{float(v) for b in part for v in b.content[0][0][:, 0]} for part in parts]
    assert [len(each) for each in keys] == [150, 200, 650]
    assert not (keys[0] & keys[1] or keys[0] & keys[2] or keys[1] & keys[2])


def test_a_fixed_ridge_holds_nothing_out() -> None:
    model, (x, t) = tiny(), points(50)
    watch = Watch(model)
    prune(model, cut((x, t), 7), batch=5, recover=False)
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
        (1400, 1, None, "auto", 1000),  # the other 400 are held out
        (1000, 1, None, "auto", 750),  # a quarter is held out
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
        (100, {}, 1, 75, (15, 10)),  # few: a row each, and a quarter held out
        (600, {}, 1, 450, (90, 60)),
        (1000, {"samples": 700}, 1, 700, (150, 150)),  # which two samples a row could not give
        (700, {}, 2, 262, (105, 70)),  # all are used, in fewer rows
        (2700, {"samples": 1000}, 2, 1000, (405, 295)),  # the rows asked for, the rest held out
        (30_000, {}, 16, 1000, (4000, 4000)),  # no more than 16 are averaged, nor more held out
        (30_000, {"samples": 100}, 16, 100, (600, 600)),  # three eighths of few
        (30_000, {"samples": 50, "batch": 4}, 4, 50, (75, 75)),
        (30_000, {"batch": 1}, 1, 1000, (375, 375)),
        (8000, {}, 12, 500, (1200, 800)),
        (100, {"samples": 2, "batch": 1}, 1, 2, (1, 1)),  # one at least: nothing is unguarded
    ],
)
def test_auto_picks_the_batch_and_bounds_what_is_held_out(
    data: int, arguments: dict[str, Any], batch: int, rows: int, held: tuple[int, int]
) -> None:
    """Eight candidates then cost no more than the gradients, which cost three passes a sample."""
    found = divide_samples(
        SampleStream([points(data)]),
        PruneConfig(sparsity=0.5, method="auto", **arguments, recover=False),
    )
    counts = tuple(sum(b.size for b in part) for part in (found.held_out, found.measured))
    assert (found.batch, found.rows, counts) == (batch, rows, held)
    assert 8 * counts[0] <= max(3 * rows * batch, 8)


@pytest.mark.parametrize(
    ("given", "batch", "most"),
    [(2, 4, 4), (12, 4, 12), (300, 1, 256), (1000, 300, 300)],
)
def test_no_forward_pass_takes_more_than_what_is_given_or_a_row(
    given: int, batch: int, most: int
) -> None:
    """Neither to hold out, nor to repair."""
    model = tiny()
    watch = Watch(model)
    data = Again(cut(points(3000), given))
    prune(model, data, method="auto", batch=batch, samples=2, sparsity=0.5, stages=1, recover=False)
    forward = [
        len(inputs)
        for inputs, gradients in zip(watch.inputs, watch.with_gradients, strict=True)
        if not gradients
    ]
    assert max(forward) <= most
    found = divide_samples(
        SampleStream(data), PruneConfig(sparsity=0.5, batch=batch, recover=False)
    )
    held = sum(part.size for part in found.held_out)
    assert found.at_once == most and found.held_out[0].size == min(most, held)


@pytest.mark.parametrize("given", [None, 47])
def test_held_out_losses_have_a_spread(given: int | None) -> None:
    """Also where mini-batches do not divide the samples: the rest is a part of its own."""
    held_out = None if given is None else [points(given, seed=1)]
    result = prune(
        tiny(),
        [points(203)],
        ridge="auto",
        method="auto",
        batch=4,
        held_out=held_out,
        recover=False,
    )
    assert all(row.held_out_error for row in result.stages) and result.held_out_error
    stream = SampleStream([points(203)])
    found = divide_samples(stream, PruneConfig(sparsity=0.5, batch=4, ridge="auto", recover=False))
    assert [batch.size for batch in found.held_out] == [28, 3]
    assert [batch.size for batch in found.measured] == [20]


@pytest.mark.parametrize("batch", [3, 4, 8])
@pytest.mark.parametrize("method", ["chita++", "auto"])
def test_rows_of_batches_that_differ_in_shape(method: str, batch: int) -> None:
    """What is left of a batch is made up to whole rows, none of which has samples of another."""
    inputs = [numbers(8, length, 6, seed=length) for length in range(2, 12)]
    data = Again([(x, x[:, 0, :3].argmax(1)) for x in inputs])
    stream = SampleStream(data)
    config = PruneConfig(sparsity=0.5, method=method, batch=batch, recover=False)
    found = divide_samples(stream, config)
    pieces = list(stream.take(found.rows * batch, 32, unit=batch))
    assert all(piece.size % batch == 0 for piece in pieces)
    rows, held = (
        {float(value) for piece in part for value in piece.content[0][0][:, 0, 0]}
        for part in (pieces, [*found.held_out, *found.measured])
    )
    assert not rows & held and len(held) == 20 and len(rows) >= 40
    model = nn.Sequential(AddSteps(), *tiny())
    prune(model, data, ridge="auto", method=method, batch=batch, stages=2, recover=False)


class AddSteps(nn.Module):
    """Over sequences of any length."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1)


@pytest.mark.parametrize("size", [1, 3, 4, 13, 26])
def test_it_does_not_matter_how_the_samples_are_batched(size: int) -> None:
    together, apart = tiny(), tiny()
    prune(together, Again([points(26)]), batch=4, recover=False)
    prune(apart, Again(cut(points(26), size)), batch=4, recover=False)
    assert torch.equal(Weights(apart).vector(), Weights(together).vector())
