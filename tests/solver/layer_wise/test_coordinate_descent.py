"""A sweep over all rows at once against the scalar loop."""

from __future__ import annotations

import pytest
import torch

from chita.solver.layer_wise.coordinate_descent import sweep
from tests.solver.layer_wise.layers import dense_minimiser, normal, random_layer


@pytest.mark.parametrize(("groups", "inputs", "block"), [(1, 9, 4), (2, 7, 128), (1, 12, 4)])
def test_is_the_scalar_cyclic_sweep(
    groups: int, inputs: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chita.solver.layer_wise.coordinate_descent.BLOCK", block)
    layer = random_layer(0, 5, inputs, k=20, groups=groups)
    mask = layer.pick(normal(2, *layer.w0.shape))
    w = expected = layer.w0 * mask
    for _ in range(2):
        w = sweep(layer, w, mask)
        expected = expected.clone()
        for g, r, j in mask.nonzero().tolist():
            h = layer.hessian[g]
            gradient = h[j] @ (expected[g, r] - layer.w0[g, r])
            expected[g, r, j] -= gradient / h[j, j]
        torch.testing.assert_close(w, expected, rtol=1e-12, atol=1e-12)


def test_sweeps_converge_to_the_minimiser() -> None:
    layer = random_layer(1, 5, 8, k=20, lam=0.5)
    mask = layer.pick(layer.w0)
    w = layer.w0 * mask
    for _ in range(300):
        w = sweep(layer, w, mask)
    torch.testing.assert_close(w, dense_minimiser(layer, mask), rtol=1e-6, atol=1e-8)
