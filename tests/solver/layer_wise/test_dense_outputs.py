"""Weights that undo a part of what the pruning of earlier layers has changed."""

from __future__ import annotations

import pytest
import torch

from chita.solver.layer_wise.dense_outputs import SHARE, nearer_to_dense
from tests.solver.layer_wise.layers import normal

ROWS, INPUTS, SAMPLES = 5, 7, 40


def test_is_the_ridge_regression_of_the_dense_outputs() -> None:
    """The problem as one least-squares system: the ridge adds rows that hold the weights."""
    w, x = normal(1, ROWS, INPUTS), normal(2, SAMPLES, INPUTS)
    d = x + 0.3 * normal(3, SAMPLES, INPUTS)
    moment, lam = x.T @ x / SAMPLES, 0.05
    held = (SAMPLES * lam * moment.diagonal().mean()).sqrt() * torch.eye(INPUTS).double()
    inputs, outputs = torch.cat([x, held]), torch.cat([d @ w.T, held @ w.T])
    expected = torch.linalg.lstsq(inputs, outputs).solution.T
    found = nearer_to_dense(w.flatten(), moment[None], (x.T @ d / SAMPLES)[None], lam)
    torch.testing.assert_close(found.view(ROWS, INPUTS), w + SHARE * (expected - w))


@pytest.mark.parametrize("groups", [1, 2])
def test_the_same_inputs_change_nothing(groups: int) -> None:
    w, x = normal(1, groups * ROWS * INPUTS), normal(2, groups, SAMPLES, INPUTS)
    moment = x.mT @ x / SAMPLES
    torch.testing.assert_close(nearer_to_dense(w, moment, moment, 0.01), w)


def test_inputs_that_are_zero_change_nothing() -> None:
    w, x = normal(1, ROWS, INPUTS), normal(2, SAMPLES, INPUTS)
    x[:, 2] = 0.0
    d = x + 0.3 * normal(3, SAMPLES, INPUTS)
    found = nearer_to_dense(
        w.flatten(), (x.T @ x / SAMPLES)[None], (x.T @ d / SAMPLES)[None], 0.01
    ).view(ROWS, INPUTS)
    assert torch.equal(found[:, 2], w[:, 2]) and not torch.equal(found[:, 1], w[:, 1])
    none = torch.zeros(1, INPUTS, INPUTS).double()
    assert torch.equal(nearer_to_dense(w.flatten(), none, none, 0.01), w.flatten())


def test_dependent_inputs_need_no_ridge() -> None:
    w, x = normal(1, ROWS, INPUTS), normal(2, SAMPLES, 3) @ normal(3, 3, INPUTS)
    d = x + 0.3 * normal(4, SAMPLES, INPUTS)
    moment, products = x.T @ x / SAMPLES, x.T @ d / SAMPLES
    found = nearer_to_dense(w.flatten(), moment[None], products[None], 0.0).view(ROWS, INPUTS)
    before, after = ((x @ v.T - d @ w.T).square().sum() for v in (w, found))
    assert after < before
