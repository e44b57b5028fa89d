import pytest
import torch
from torch import nn
from torch.func import functional_call, hessian
from torch.nn.functional import cross_entropy

from chita.model.weights import Weights
from chita.paper.traces import fisher_trace, hessian_trace
from tests.support.pruning import numbers, tiny


def test_fisher_trace_is_that_of_the_mean_outer_product() -> None:
    stored = numbers(5, 7)  # p = 5, n = 7
    truth = stored @ stored.T / 7
    assert fisher_trace(stored) == pytest.approx(float(truth.trace()))


def test_hessian_trace_is_near_the_exact_one() -> None:
    model: nn.Module = tiny()
    inputs, targets = numbers(40, 6), torch.arange(40) % 3
    names = ["0.weight", "2.weight"]
    parameters = {name: model.get_parameter(name).detach() for name in names}

    def loss(some: dict[str, torch.Tensor]) -> torch.Tensor:
        return cross_entropy(functional_call(model, some, (inputs,)), targets)

    blocks = hessian(loss)(parameters)
    truth = sum(
        float(blocks[name][name].detach().reshape(parameters[name].numel(), -1).trace())
        for name in names
    )
    batches = [(inputs[:25], targets[:25]), (inputs[25:], targets[25:])]  # of unequal sizes
    found = hessian_trace(model, Weights(model), batches, probes=800, seed=0)
    assert found == pytest.approx(truth, rel=0.03)
