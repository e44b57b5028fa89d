"""The problem of a stage in its forms, against the optimiser on explicitly scaled arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import chita
from chita.curvature.source import LocalModel
from chita.model.layers import Axes
from chita.pruning.stage_problem import METRICS, Formulation, Shape, StageProblem, metric_scale
from chita.solver.algorithm import Layout
from chita.solver.constraints.constraint import ANY_SUPPORT
from chita.solver.division import Division
from chita.solver.matrix.in_memory import HeldMatrix
from chita.solver.options import Options
from chita.solver.ranks import ALONE
from chita.solver.solve import ALGORITHMS
from tests.support.pruning import numbers

SIZES = (48, 24)
SHAPE = Shape((Axes(1, 1, 8, 6, 1), Axes(1, 1, 3, 8, 1)))
P, N, K, BATCH = 72, 12, 20, 4


def formulation(
    metric: str, block_size: int | None, first_order: bool, block_sweeps: int = 0
) -> Formulation:
    options = Options(iterations=6, block_sweeps=block_sweeps)
    return Formulation(options, metric, block_size, first_order)


def stage_problem(solver: str = "bso", dtype: torch.dtype = torch.float64) -> StageProblem:
    return StageProblem(
        LocalModel(HeldMatrix(numbers(P, N).to(dtype)), alpha=1 / BATCH),
        numbers(P, seed=1).to(dtype),
        K,
        constraint=ANY_SUPPORT,
        shape=SHAPE,
        division=Division(ALONE, Layout(SIZES)),
        algorithm=ALGORITHMS[solver],
    )


def with_matrix(stage: StageProblem, matrix: HeldMatrix) -> StageProblem:
    return replace(stage, local=replace(stage.local, matrix=matrix))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("block_size", [None, 20])
@pytest.mark.parametrize("first_order", [True, False])
@pytest.mark.parametrize("solver", ["bso", "cd"])
def test_a_form_is_the_optimiser_in_that_metric(
    metric: str, block_size: int | None, first_order: bool, solver: Any
) -> None:
    stage = stage_problem(solver)
    found = stage.solve(formulation(metric, block_size, first_order), 0.03)
    A, w0 = stage.matrix.whole().t(), stage.w0
    scale = torch.ones_like(w0)
    if metric != "plain":
        scale = metric_scale(metric, stage.matrix, w0, shape=SHAPE, columns=slice(0, P))
    truth = chita.solve(
        A / scale,
        w0 * scale,
        K,
        lam=0.03,
        alpha=1 / BATCH if first_order else 0.0,
        method=solver,
        block_size=block_size,
        layers=list(SIZES),
        iterations=6,
    )
    assert torch.equal(found.support, truth.support)
    torch.testing.assert_close(found.w, truth.w / scale)
    assert found.objective == pytest.approx(truth.objective)


def test_the_objective_is_that_of_the_metric() -> None:
    """1/2 |A d + alpha|^2 + n lambda / 2 |D d|^2, at the solution."""
    stage = stage_problem()
    found = stage.solve(formulation("fisher", None, True), 0.03)
    scale = metric_scale("fisher", stage.matrix, stage.w0, shape=SHAPE, columns=slice(0, P))
    d = found.w - stage.w0
    rho = stage.matrix.whole().t() @ d + 1 / BATCH
    truth = rho.square().sum() / 2 + N * 0.03 / 2 * (scale * d).square().sum()
    assert found.objective == pytest.approx(float(truth))


def test_a_metric_is_computed_once() -> None:
    """The first solve reads A for the diagonal of the Fisher and for the largest entry of A D^-1,
    the second has both."""
    reads: list[tuple[int, int]] = []

    class Watched(HeldMatrix):
        def read(self, start: int, stop: int) -> Tensor:
            reads.append((start, stop))
            return super().read(start, stop)

    stage = stage_problem()
    stage = with_matrix(stage, Watched(stage.matrix.whole()))
    for ridge in (0.03, 0.1):
        stage.solve(formulation("fisher", None, True), ridge)
        assert reads == [(0, P), (0, P)]


def test_dead_columns_and_the_fisher_metric_share_one_pass() -> None:
    reads: list[tuple[int, int]] = []

    class Watched(HeldMatrix):
        def read(self, start: int, stop: int) -> Tensor:
            reads.append((start, stop))
            return super().read(start, stop)

    stage = stage_problem()
    stage = replace(with_matrix(stage, Watched(stage.matrix.whole())), drop_dead=True)
    for others, metric in enumerate(("plain", "fisher", "lamp")):
        stage.solve(formulation(metric, None, True), 0.03)
        assert reads == [(0, P)] * (1 + others)  # one more for the magnitude of A in each metric


def with_dead(dead: list[int], w0: Tensor | None = None) -> StageProblem:
    """A stage whose dead columns have the largest weights, and are dropped."""
    stage = stage_problem()
    columns, w = stage.matrix.whole().clone(), stage.w0.clone() if w0 is None else w0
    columns[dead] = 0.0
    w[dead] = 10 + numbers(len(dead)).abs()
    return replace(with_matrix(stage, HeldMatrix(columns)), w0=w, drop_dead=True)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("first_order", [True, False])
@pytest.mark.parametrize("solver", ["bso", "cd"])
def test_dead_columns_might_as_well_be_deleted(metric: str, first_order: bool, solver: Any) -> None:
    dead = [0, 3, 17, 40, 50, 71]
    live = [j for j in range(P) if j not in dead]
    stage = replace(with_dead(dead), algorithm=ALGORITHMS[solver])
    found = stage.solve(formulation(metric, None, first_order), 0.03)
    A, w0, scale = stage.matrix.whole().t(), stage.w0, torch.ones(P, dtype=torch.float64)
    if metric != "plain":
        scale = metric_scale(metric, stage.matrix, w0, shape=SHAPE, columns=slice(0, P))
    truth = chita.solve(
        (A / scale)[:, live],
        (w0 * scale)[live],
        K,
        lam=0.03,
        alpha=1 / BATCH if first_order else 0.0,
        method=solver,
        iterations=6,
    )
    assert found.support.tolist() == [live[j] for j in truth.support]
    torch.testing.assert_close(found.w[live], truth.w / scale[live])
    assert not found.w[dead].any() and stage.dead.count == len(dead)
    kept = replace(stage, drop_dead=False, _scaled={}).solve(formulation("plain", None, True), 0.03)
    assert set(dead) <= set(kept.support.tolist())


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("blocks", [(None, 0), (20, 0), (20, 2)])
@pytest.mark.parametrize("k", [1, K, 60, 70, P])
def test_every_form_keeps_k_weights_and_live_ones_first(
    metric: str, blocks: tuple[int | None, int], k: int
) -> None:
    dead = list(range(30, 40))
    stage = replace(with_dead(dead), k=k)
    form = formulation(metric, blocks[0], True, blocks[1])
    found, (mask, support) = stage.solve(form, 0.03), stage.mask(form)
    largest = sorted(dead, key=lambda j: -float(stage.w0[j]))
    for kept, w in ((found.support, found.w), (support, mask)):
        assert len(kept) == k and int(w.count_nonzero()) == k
        filled = [j for j in kept.tolist() if j in dead]
        assert len(filled) == max(0, k - (P - len(dead)))
        assert torch.equal(w[filled], stage.w0[filled])
        if metric == "plain":
            assert set(filled) == set(largest[: len(filled)])
    assert torch.equal(mask[support], stage.w0[support])


def test_a_layer_of_dead_columns_alone_is_ranked_as_any_other() -> None:
    stage = with_dead([*range(5), *range(48, P)])  # the second layer
    assert stage.dead.count == 5
    found = stage.solve(formulation("plain", None, True), 0.03)
    assert bool((found.support >= 48).any()) and not bool((found.support < 5).any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_stands_still_is_w0_on_the_support(dtype: torch.dtype) -> None:
    stage = stage_problem(dtype=dtype)
    solution = stage.solve(formulation("lamp", None, True), 0.03)
    still = stage.still(solution)
    kept = torch.zeros(P, dtype=torch.bool)
    kept[solution.support] = True
    assert torch.equal(still, torch.where(kept, stage.w0, 0.0))
    assert len(solution.support) == K


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dead", [0, 60])
def test_another_lambda_moves_the_weights_of_a_support(metric: str, dead: int) -> None:
    """The update is the minimiser on the support of another solution, dead columns included."""
    stage = replace(stage_problem(), drop_dead=True)
    columns = numbers(P, N)
    columns[:dead] = 0
    stage = with_matrix(stage, HeldMatrix(columns))
    form = formulation(metric, None, True)
    first = stage.solve(form, 1.0)
    assert torch.equal(stage.update(form, 1.0, first).support, first.support)
    torch.testing.assert_close(stage.update(form, 1.0, first).w, first.w)
    other = stage.update(form, 0.01, first)
    assert torch.equal(other.support, first.support)
    exact = stage.solve(replace(form, options=replace(form.options, iterations=0)), 0.01)
    if torch.equal(exact.support, first.support):
        torch.testing.assert_close(other.w, exact.w)
        assert other.objective == pytest.approx(exact.objective)
    live = first.support[first.support >= dead]
    step = torch.zeros_like(other.w)
    step[live] = 1e-3
    assert quadratic(stage, form, other.w, 0.01) <= quadratic(stage, form, other.w + step, 0.01)


def quadratic(stage: StageProblem, form: Formulation, w: Tensor, ridge: float) -> float:
    """The objective of a form at the weights w."""
    scale = torch.ones_like(w)
    if form.metric != "plain":
        scale = metric_scale(form.metric, stage.matrix, stage.w0, shape=SHAPE, columns=slice(0, P))
    d = w - stage.w0
    residual = stage.matrix.forward(d) + 1 / BATCH
    return float(residual.square().sum() + N * ridge * (scale * d).square().sum()) / 2


def test_blocks_are_solved_anew_for_another_lambda() -> None:
    stage, form = stage_problem(), formulation("plain", 20, True)
    found = stage.update(form, 0.01, stage.solve(form, 1.0))
    assert torch.equal(found.w, stage.solve(form, 0.01).w)


@pytest.mark.parametrize(("kept", "empties"), [((10, 5), False), ((14, 1), False), ((15, 0), True)])
def test_a_layer_is_emptied_if_it_keeps_far_less_than_the_network(
    kept: tuple[int, int], empties: bool
) -> None:
    """Half of the second layer is zero before: its share counts among the other half."""
    stage = stage_problem()
    w0 = stage.w0.clone()
    w0[SIZES[0] + SIZES[1] // 2 :] = 0
    support = torch.cat([torch.arange(kept[0]), SIZES[0] + torch.arange(kept[1])])
    assert replace(stage, w0=w0).empties_layer(support) == empties
    assert not replace(stage, w0=torch.zeros(P)).empties_layer(support[:0])
