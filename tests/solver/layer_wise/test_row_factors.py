"""Systems of single rows, gathered in batches and factorised."""

from __future__ import annotations

import pytest
import torch

from chita.solver.layer_wise import row_factors
from chita.solver.layer_wise.row_factors import factorise, undamped_solve
from tests.solver.layer_wise.layers import dense_minimiser, random_layer

MASK = torch.tensor([[1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 1]]).bool()


@pytest.mark.parametrize("workspace", [1, 8 * 5**2, 1 << 20])
def test_short_rows_are_padded(workspace: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_factors, "WORKSPACE", workspace)
    layer = random_layer(2, 3, 6, k=0, groups=2)
    mask, right = MASK.expand(2, 3, 6), layer.w0 @ layer.hessian
    everything = torch.ones(2, 3, 1, dtype=torch.bool)
    found, jitter = factorise(layer.hessian, mask, undamped_solve, right, everything)
    torch.testing.assert_close(found, dense_minimiser(layer, mask))
    assert jitter == 0


def test_only_the_rows_that_are_left_are_solved() -> None:
    layer = random_layer(2, 3, 6, k=0)
    right = layer.w0 @ layer.hessian
    left = torch.tensor([True, True, False])[None, :, None]
    found, _ = factorise(layer.hessian, MASK[None], undamped_solve, right, left)
    torch.testing.assert_close(found, dense_minimiser(layer, MASK[None]) * left)


def test_a_system_without_factor_is_left_at_zero() -> None:
    systems = torch.stack([torch.eye(2), -torch.eye(2)])
    found, _ = undamped_solve(systems, torch.ones(2, 2))
    assert found.tolist() == [[1.0, 1.0], [0.0, 0.0]]
