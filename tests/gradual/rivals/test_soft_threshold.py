import pytest
import torch

from chita.gradual.rivals.soft_threshold import SoftThreshold, soft_threshold
from tests.gradual.training import (
    SIZES,
    accuracy,
    run,
    sgd,
    small_model,
    small_plan,
    take_in,
    zeros,
)


def test_the_effective_weight_and_its_gradient() -> None:
    """sign(w) relu(|w| - sigmoid(s)), dense in w where it is not zero, and in s as in the paper."""
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(50, dtype=torch.float64, generator=generator, requires_grad=True)
    s = torch.tensor(-0.5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(50, dtype=torch.float64, generator=generator)
    effective = soft_threshold(w, s.sigmoid())
    effective.backward(upstream)
    t = float(s.detach().sigmoid())
    alive = w.detach().abs() > t
    assert 0 < alive.sum() < 50
    assert torch.equal(effective != 0, alive)
    torch.testing.assert_close(effective.detach()[alive], (w - t * w.sign()).detach()[alive])
    torch.testing.assert_close(w.grad, upstream * alive)
    in_s = -t * (1 - t) * (upstream * w.detach().sign() * alive).sum()
    torch.testing.assert_close(s.grad, in_s)


def test_each_layer_has_the_sparsity_that_its_threshold_gives() -> None:
    model = small_model()
    soft = SoftThreshold(model, sgd(model), small_plan())
    with torch.no_grad():
        soft.s.copy_(torch.tensor([-3.0, -2.0, -1.0]))
    for (name, effective), s in zip(soft.effective().items(), soft.s, strict=True):
        weight = model.get_parameter(name)
        assert torch.equal(effective == 0, weight.abs() <= s.sigmoid())


@pytest.mark.parametrize("sparsity", [0.5, 0.8, 0.95])
def test_the_decay_is_found_that_meets_the_target(sparsity: float) -> None:
    model, plan = small_model(), small_plan(sparsity)
    optimizer = sgd(model, rate=0.02)
    soft = SoftThreshold(model, optimizer, plan)
    take_in(optimizer, soft)
    shares = []
    for epoch in range(plan.epochs):
        run(model, optimizer, soft, plan, begin=epoch, end=epoch + 1)
        effective = torch.cat([w.flatten() for w in soft.effective().values()])
        shares.append(float((effective == 0).float().mean()))
    assert shares[0] < sparsity / 2
    assert shares[-1] == pytest.approx(sparsity, abs=0.02)
    assert len(set(soft.s.tolist())) == 3  # they were learned, too
    soft.finalize()
    assert sum(SIZES) - sum(zeros(model)) == int((1 - sparsity) * sum(SIZES) + 1e-9)


def test_it_learns_what_it_prunes() -> None:
    model, plan = small_model(), small_plan(0.8)
    optimizer = sgd(model, rate=0.05)
    soft = SoftThreshold(model, optimizer, plan)
    take_in(optimizer, soft)
    run(model, optimizer, soft, plan)
    soft.finalize()
    assert accuracy(model) > 0.9
