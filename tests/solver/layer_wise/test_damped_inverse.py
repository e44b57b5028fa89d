"""The inverse of H + rho I for growing rho."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from chita.solver.layer_wise.damped_inverse import LARGEST_GROWTH, DampedInverse, next_inverse
from tests.solver.layer_wise.layers import normal


def hessian(groups: int, size: int) -> Tensor:
    """Singular matrices with the diagonal 1."""
    x = normal(1, groups, size // 2, size) * torch.logspace(0, -3, size).double()
    product = x.mT @ x
    scale = product.diagonal(dim1=1, dim2=2).sqrt()
    return product / (scale[:, :, None] * scale[:, None])


@pytest.mark.parametrize("groups", [1, 3])
def test_at_is_the_inverse_for_any_order(groups: int) -> None:
    h = hessian(groups, 20)
    inverse = DampedInverse(h)
    for rho in (0.1, 0.11, 0.5, 0.2):
        expected = torch.linalg.inv(h + rho * torch.eye(20).double())
        torch.testing.assert_close(inverse.at(rho), expected)


@pytest.mark.parametrize("groups", [1, 3])
def test_products_alone_stay_accurate_over_many_steps(groups: int) -> None:
    h, unit, rho = hessian(groups, 30).float(), torch.eye(30), 0.1
    found = torch.linalg.inv(h + rho * unit)
    for _ in range(30):
        growth = LARGEST_GROWTH * rho
        rho += growth
        found = next_inverse(found, h + rho * unit, growth)
        expected = torch.linalg.inv(h.double() + rho * unit)
        assert float((found - expected).norm() / expected.norm()) < 2e-5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    h = hessian(2, 64)
    inverse = DampedInverse(h.float().cuda())
    for step in range(20):
        rho = 0.1 * 1.12**step
        expected = torch.linalg.inv(h + rho * torch.eye(64).double())
        torch.testing.assert_close(inverse.at(rho).cpu().double(), expected, rtol=1e-3, atol=1e-3)
