import torch
import torch.nn.functional as F  # noqa: N812
from torch.func import functional_call

from chita.gradual.rivals.dnw import DNW
from tests.gradual.training import (
    SIZES,
    accuracy,
    clusters,
    run,
    sgd,
    small_model,
    small_plan,
    zeros,
)


def test_the_forward_pass_has_the_largest_weights_of_each_layer() -> None:
    model = small_model()
    dnw = DNW(model, sgd(model), small_plan(0.75))
    for (name, effective), size in zip(dnw.effective().items(), SIZES, strict=True):
        weight = model.get_parameter(name)
        kept = effective != 0
        assert kept.sum() == size // 4
        assert (effective[kept] == weight[kept]).all()
        assert weight[kept].abs().min() >= weight[~kept].abs().max()


def test_the_gradient_reaches_pruned_weights_straight_through() -> None:
    """It is that of the loss with respect to the sparse weights, for all of them."""
    model = small_model()
    dnw = DNW(model, sgd(model), small_plan(0.75))
    inputs, labels = clusters()
    sparse = {name: w.detach().requires_grad_() for name, w in dnw.effective().items()}
    F.cross_entropy(functional_call(model, sparse, (inputs,)), labels).backward()
    F.cross_entropy(functional_call(model, dnw.effective(), (inputs,)), labels).backward()
    for name, w in sparse.items():
        gradient = model.get_parameter(name).grad
        torch.testing.assert_close(gradient, w.grad)
        assert (gradient[w == 0] != 0).any()


def test_weights_outside_join_when_they_are_large_enough() -> None:
    model, plan = small_model(), small_plan(0.8)
    optimizer = sgd(model)
    dnw = DNW(model, optimizer, plan)
    before = torch.cat([w.flatten() for w in dnw.effective().values()]) != 0
    run(model, optimizer, dnw, plan)
    after = torch.cat([w.flatten() for w in dnw.effective().values()]) != 0
    assert (after & ~before).any()
    dnw.finalize()
    assert sum(SIZES) - sum(zeros(model)) == int(0.2 * sum(SIZES))
    assert accuracy(model) > 0.9
