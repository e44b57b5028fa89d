from __future__ import annotations

import pytest
import torch

from tests.solver.batches import Batch, check_equal, close

SIZES, KEPT = [9, 7, 8, 9], [4, 0, 8, 1]


def test_the_start_is_that_of_each_block_alone() -> None:
    batch = Batch(0, sizes=SIZES, kept=KEPT)
    problem = batch.problem()
    assert problem.counts == KEPT
    check_equal(problem, problem.start(), [x for _, x in batch.alone()])


def test_a_batch_that_keeps_nothing_has_a_start_too() -> None:
    batch = Batch(0, sizes=[4, 5], kept=[0, 0])
    problem = batch.problem()
    check_equal(problem, problem.start(), [x for _, x in batch.alone()])


def test_gradients_are_those_of_each_block_and_zero_for_padding() -> None:
    batch = Batch(1, sizes=SIZES, kept=KEPT)
    problem = batch.problem()
    gradient = problem.gradient(problem.start())
    for row, (alone, x) in enumerate(batch.alone()):
        close(gradient[row, : SIZES[row]], alone.gradient(x))
        assert not gradient[row, SIZES[row] :].any()


def test_w0_on_any_support_has_the_residual_of_its_definition() -> None:
    batch = Batch(2, sizes=SIZES, kept=KEPT)
    kept = ~batch.kept
    residual = batch.problem().unmoved(kept)
    for row, (alone, _) in enumerate(batch.alone()):
        support = kept[row, : SIZES[row]].nonzero()[:, 0]
        close(residual[row], alone.unmoved(support).rho)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200])
def test_combine_sums_the_chosen_columns(count: int) -> None:
    """Counts around the size of a bag, in rows that choose nothing, some and all."""
    batch = Batch(3, sizes=[200, 200, 200], kept=[5, 5, 5])
    problem = batch.problem()
    generator = torch.Generator().manual_seed(0)
    places = problem.places(torch.stack([torch.randperm(200, generator=generator)] * 3))
    values = torch.randn(3, 200, generator=generator, dtype=torch.float64)
    chosen = torch.arange(200) < torch.tensor([[0], [count], [min(count, 3)]])
    expected = torch.einsum("rc,rcn->rn", values * chosen, problem.flat_columns[places])
    close(problem.combine(places, values, chosen), expected)


def test_points_are_taken_and_put_by_block() -> None:
    batch = Batch(4, sizes=SIZES, kept=KEPT)
    problem = batch.problem()
    x, other = problem.start(), problem.start()
    rows = torch.tensor([2, 0])
    moved = problem.point(rows, x.support[rows], 2 * x.values[rows], x.rho[rows] + 1)
    x.put(rows, moved)
    for part, given, before in zip(x, moved, other, strict=True):
        assert torch.equal(part[rows], given)
        assert torch.equal(part[[1, 3]], before[[1, 3]])
    # The objective is that of the weights, whatever the residual.
    w = problem.spread(x.support, x.values)[2]
    ridge = float((w - batch.w0[2]).square().sum()) * batch.mu / 2
    close(x.objective[2], x.rho[2].square().sum() / 2 + ridge)
