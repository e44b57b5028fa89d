from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from chita import ChitaError
from chita.model.samples.batch import Batch
from chita.model.weights import Weights
from chita.pruning.repair import DenseMeans, correct_biases
from tests.support.messages import naming


def random_batches(sizes: list[int], *shape: int, seed: int = 0) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    inputs = (1 + torch.randn(size, *shape, generator=generator).double() for size in sizes)
    return [Batch(((x,), torch.zeros(len(x))), len(x)) for x in inputs]


def everything(batches: list[Batch]) -> Tensor:
    return torch.cat([batch.content[0][0] for batch in batches])


def fresh(model: nn.Module, seed: int = 0) -> nn.Module:
    """Weights, biases and statistics drawn from the seed, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in model.double().state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) - 0.4)
    for name, tensor in model.state_dict().items():
        if name.endswith("running_var"):
            tensor.abs_()
    return model


@torch.no_grad()
def halve(weights: Weights) -> None:
    """Prune each second weight, which moves every mean."""
    for weight in weights:
        weight.parameter.view(-1)[::2] = 0


def layer_means(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The truth: the mean output of every layer of a Sequential but the activations."""
    means = []
    model.eval()
    with torch.no_grad():
        for layer in model:
            x = layer(x)
            if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, Conv1D)):
                dim = 1 if isinstance(layer, (nn.Conv1d, nn.Conv2d)) else -1
                means.append(x.movedim(dim, -1).flatten(end_dim=-2).mean(0))
    return means


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (
        lambda: nn.Sequential(
            nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)
        ),
        (6,),
    ),
    "tokens": (lambda: nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4)), (7, 6)),
    "transformers": (lambda: nn.Sequential(Conv1D(5, 6), nn.GELU(), Conv1D(4, 5)), (7, 6)),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, groups=4),
            nn.ReLU(),
            nn.Conv2d(4, 3, 1),
        ),
        (2, 8, 8),
    ),
    "signals": (lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Conv1d(4, 3, 3)), (2, 9)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_over_one_batch_every_layer_has_the_dense_mean_again(name: str) -> None:
    build, shape = NETWORKS[name]
    model = fresh(build())
    weights = Weights(model, include="*.weight")
    batches = random_batches([40], *shape)
    dense = layer_means(model, everything(batches))
    means = DenseMeans(model, weights, batches)
    halve(weights)
    pruned = layer_means(model, everything(batches))
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(dense, pruned, strict=True))
    correct_biases(model, means)
    repaired = layer_means(model, everything(batches))
    for truth, found in zip(dense, repaired, strict=True):
        assert torch.allclose(truth, found, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_an_affine_network_comes_out_exactly_however_the_samples_are_cut(
    sizes: list[int], seed: int
) -> None:
    model = fresh(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3), nn.Linear(3, 2)), seed)
    weights, batches = Weights(model), random_batches(sizes, 4, seed=seed)
    dense = layer_means(model, everything(batches))
    means = DenseMeans(model, weights, batches)
    halve(weights)
    correct_biases(model, means)
    repaired = layer_means(model, everything(batches))
    for truth, found in zip(dense, repaired, strict=True):
        assert torch.allclose(truth, found, atol=1e-10)


def test_many_batches_come_close_where_one_is_exact() -> None:
    build, shape = NETWORKS["images"]
    model = fresh(build())
    weights, batches = Weights(model), random_batches([16] * 8, *shape)
    dense = layer_means(model, everything(batches))
    means = DenseMeans(model, weights, batches)
    halve(weights)
    pruned = layer_means(model, everything(batches))
    correct_biases(model, means)
    repaired = layer_means(model, everything(batches))
    for truth, before, after in zip(dense, pruned, repaired, strict=True):
        assert (after - truth).abs().max() < 0.01 * (before - truth).abs().max()


class Recurrent(nn.Module):
    """One layer, called twice, and one that only long inputs reach."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(3, 3)
        self.rare = nn.Linear(3, 3)
        self.plain = nn.Linear(3, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.step(self.step(x))
        if self.training:
            hidden = self.rare(hidden)
        out: Tensor = self.plain(hidden)
        return out


def test_shared_uncalled_and_biasless_layers() -> None:
    model = fresh(Recurrent())
    weights, batches = Weights(model), random_batches([20], 3)
    means = DenseMeans(model, weights, batches)
    x = everything(batches)

    def two_calls() -> tuple[Tensor, Tensor]:
        first = model.step(x)
        return first.mean(0), model.step(first).mean(0)

    with torch.no_grad():
        dense = two_calls()
        halve(weights)
        first = model.step(x)
        shift = dense[0] - first.mean(0)
        second = dense[1] - model.step(first + shift).mean(0)
        bias, rare = model.step.bias.clone(), model.rare.bias.clone()
        correct_biases(model, means)
    assert torch.allclose(model.step.bias, bias + (shift + second) / 2, atol=1e-12)
    assert torch.equal(model.rare.bias, rare)
    assert model.plain.bias is None


def test_the_model_is_left_as_it_was() -> None:
    model = fresh(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)))
    model[2].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    batches = random_batches([8, 8], 4)
    means = DenseMeans(model, Weights(model), batches)
    shifts = means.bias_shifts(model)
    assert all(not shift.any() for shift in shifts.values())  # dropout is off, nothing was pruned
    assert list(shifts) == [model[0].bias, model[2].bias]
    assert [module.training for module in model] == [True, True, False]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model[0]._forward_hooks
    assert torch.equal(torch.get_rng_state(), state)


def test_hooks_are_gone_after_a_failure() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(ChitaError, match=naming("model", "inputs", "(8, 3)")):
        DenseMeans(model, Weights(model), random_batches([8], 3))
    assert not model[0]._forward_hooks


def test_a_model_with_keywords_in_half_precision() -> None:
    class Keywords(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, *, x: Tensor, labels: Tensor) -> Tensor:
            out: Tensor = self.layer(x)
            return out

    model = fresh(Keywords()).bfloat16()
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    weights = Weights(model)
    means = DenseMeans(model, weights, [Batch({"x": x, "labels": torch.zeros(64)}, 64)])
    with torch.no_grad():
        dense = model.layer(x).float().mean(0)
        halve(weights)
        correct_biases(model, means)
        repaired = model.layer(x).float().mean(0)
    assert model.layer.bias.dtype == torch.bfloat16
    assert torch.allclose(dense, repaired, atol=0.01)
