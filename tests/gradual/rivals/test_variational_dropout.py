import math

import numpy as np
import pytest
import torch
from torch import nn

from chita.errors import ChitaError
from chita.gradual.rivals.variational_dropout import VariationalDropout, kl_divergence
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
from tests.support.messages import naming


def true_divergence(log_alpha: float) -> float:
    """E log|1 + sqrt(alpha) z| - log(alpha) / 2, up to the constant that makes it 0 at infinity.

    The expectation over z ~ N(0, 1) by the midpoint rule in u = |1 + sqrt(alpha) z|^(1/4), in which
    the singularity of the logarithm at 0 is harmless.
    """
    spread = math.exp(log_alpha / 2)
    most = (1 + 12 * spread) ** 0.25
    u = (np.arange(200_000) + 0.5) * most / 200_000
    x, weight = u**4, 4 * u**3 * most / 200_000
    density = np.exp(-((x - 1) ** 2) / (2 * spread**2)) + np.exp(-((x + 1) ** 2) / (2 * spread**2))
    mean = float(np.sum(np.log(x) * density * weight)) / (spread * math.sqrt(2 * math.pi))
    return mean - log_alpha / 2 + (np.euler_gamma + math.log(2)) / 2


@pytest.mark.parametrize("log_alpha", [-6.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0])
def test_the_divergence_against_numeric_integration(log_alpha: float) -> None:
    approximate = float(kl_divergence(torch.tensor(log_alpha, dtype=torch.float64)))
    assert approximate == pytest.approx(true_divergence(log_alpha), abs=0.01)


def noisy(model: nn.Module, log_variance: float) -> VariationalDropout:
    return VariationalDropout(model, sgd(model), small_plan(), start=log_variance)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 3), (1, 6)),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (1, 4, 5, 5)),
        (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (1, 2, 4, 4)),
    ],
)
def test_outputs_are_as_if_the_weights_were_noisy(layer: nn.Module, shape: tuple[int, ...]) -> None:
    """Mean and variance of the outputs against those under weights drawn from N(w, sigma^2)."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(shape, generator=generator)
    model = nn.Sequential(layer)
    weight, bias = layer.weight.detach().clone(), layer.bias
    drawn = []
    with torch.no_grad():
        for _ in range(4000):
            layer.weight.copy_(weight + 0.5 * torch.randn(weight.shape, generator=generator))
            drawn.append(layer(inputs))
        layer.weight.copy_(weight)
        noisy(model, 2 * math.log(0.5))
        local = model(inputs.expand(4000, *shape[1:]))
        assert bias is not None
    truth = torch.cat(drawn)
    assert (local.mean(0) - truth.mean(0)).abs().max() < 0.1 * truth.std(0).max()
    assert (local.std(0) / truth.std(0) - 1).abs().max() < 0.08


def test_no_noise_in_evaluation_and_none_after_the_end() -> None:
    model = small_model()
    inputs = torch.randn(5, 8)
    plain = model(inputs)
    dropout = noisy(model, 0.0)
    assert not torch.allclose(model(inputs), plain)
    assert torch.equal(model.eval()(inputs), plain)
    dropout.finalize()
    once, twice = model.train()(inputs), model(inputs)
    assert torch.equal(once, twice)


def test_the_weights_with_the_largest_alpha_go() -> None:
    model = small_model()
    dropout = noisy(model, -4.0)
    generator = torch.Generator().manual_seed(2)
    log_variances = dropout.groups()[0]["params"]
    for each in log_variances:
        each.data.copy_(3 * torch.randn(each.shape, generator=generator))
    before, log_alpha = dropout.weights.vector(), dropout.log_alpha()
    log_variance = torch.cat([each.detach().flatten() for each in log_variances])
    torch.testing.assert_close(log_alpha, log_variance - (before**2 + 1e-8).log())
    dropout.finalize()
    after = dropout.weights.vector()
    kept = after != 0
    assert kept.sum() == int(0.2 * sum(SIZES))
    assert torch.equal(after[kept], before[kept])
    assert log_alpha[kept].max() <= log_alpha[~kept].min()


def test_weights_of_other_layers_are_refused() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.Linear(4, 4))
    with pytest.raises(ChitaError, match=naming("Linear", "Conv2d", "0.weight", "include")):
        noisy(model, -4.0)


def test_it_sparsifies_by_itself() -> None:
    """The divergence alone drives most weights above log alpha = 3 while the loss stays low."""
    model, plan = small_model(), small_plan(0.8, epochs=24)
    optimizer = sgd(model)
    dropout = VariationalDropout(model, optimizer, plan, divergence=1 / 320)
    take_in(optimizer, dropout)
    run(model, optimizer, dropout, plan)
    share = float((dropout.log_alpha() > 3).float().mean())
    assert share == pytest.approx(0.8, abs=0.15)
    dropout.finalize()
    assert sum(SIZES) - sum(zeros(model)) == int(0.2 * sum(SIZES))
    assert accuracy(model) > 0.9
