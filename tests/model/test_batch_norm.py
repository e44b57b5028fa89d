from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from chita import ChitaError
from chita.model.batch_norm import reestimate_batch_norm
from tests.support.messages import naming


@pytest.fixture
def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (2 + 3 * torch.randn(size, 3, 6, 6, generator=generator), torch.zeros(size))
        for size in (8, 8, 5)
    ]


@pytest.fixture
def model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4, momentum=0.3),
        nn.ReLU(),
        nn.BatchNorm2d(4),
    )


def test_equals_the_average_of_the_batches_own_statistics(
    model: nn.Sequential, batches: list[tuple[Tensor, Tensor]]
) -> None:
    model(batches[0][0])  # statistics that have to be forgotten
    reestimate_batch_norm(model, batches)

    hidden = [model[0](inputs).detach() for inputs, _ in batches]
    for layer in (model[1], model[3]):
        means = torch.stack([h.mean(dim=(0, 2, 3)) for h in hidden])
        variances = torch.stack([h.var(dim=(0, 2, 3), unbiased=True) for h in hidden])
        assert torch.allclose(layer.running_mean, means.mean(dim=0), atol=1e-5)
        assert torch.allclose(layer.running_var, variances.mean(dim=0), atol=1e-5)
        assert int(layer.num_batches_tracked) == 3
        # What the next layer saw: each batch normalised by its own statistics.
        hidden = [
            (
                (h - h.mean(dim=(0, 2, 3), keepdim=True))
                / (h.var(dim=(0, 2, 3), unbiased=False, keepdim=True) + layer.eps).sqrt()
            ).relu()
            for h in hidden
        ]


def test_momenta_modes_and_weights_are_restored(
    model: nn.Sequential, batches: list[tuple[Tensor, Tensor]]
) -> None:
    model.eval()
    model[3].train()
    weights = [parameter.clone() for parameter in model.parameters()]
    reestimate_batch_norm(model, batches)
    assert (model[1].momentum, model[3].momentum) == (0.3, 0.1)
    assert [module.training for module in model] == [False, False, False, True]
    assert all(map(torch.equal, model.parameters(), weights))


def test_a_failure_changes_nothing(
    model: nn.Sequential, batches: list[tuple[Tensor, Tensor]]
) -> None:
    def interrupted() -> Iterator[tuple[Tensor, Tensor]]:
        yield batches[0]
        raise KeyboardInterrupt

    model(batches[0][0])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(KeyboardInterrupt):
        reestimate_batch_norm(model, interrupted())
    with pytest.raises(ChitaError, match=naming("batches", "batch norm")):
        reestimate_batch_norm(model, [])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model[1].momentum == 0.3


def test_layers_without_statistics_are_left_alone(batches: list[tuple[Tensor, Tensor]]) -> None:
    model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Conv2d(3, 1, 1))
    reestimate_batch_norm(model, batches)
    assert model[0].running_mean is None
