from dataclasses import replace

import pytest
import torch

from chita import ChitaError, data, zoo
from chita.data.dataset import Batches, ImageData
from chita.data.preprocessing import pad_crop_flip
from chita.model.accuracy import accuracy
from chita.zoo.training import Recipe, initialise, train
from tests.support.messages import naming

pytestmark = pytest.mark.slow

SHORT = Recipe(epochs=1, learning_rate=0.05)


@pytest.fixture(scope="module")
def digits() -> data.Splits:
    return data.load("mnist-slice")


def part(images: ImageData, size: int) -> ImageData:
    return replace(images, images=images.images[:size], labels=images.labels[:size])


def network_weights(state: dict[str, torch.Tensor]) -> list[str]:
    return [key for key, tensor in state.items() if tensor.ndim > 1]


def test_learns(digits: data.Splits) -> None:
    model = zoo.MLPNet()
    train(model, part(digits.train, 6000), replace(SHORT, epochs=3))
    assert accuracy(model, Batches(digits.test, 1000)) > 88


@pytest.mark.parametrize("name", list(zoo.NETWORKS))
def test_same_seed_same_bits(name: str) -> None:
    network = zoo.get(name)
    shape = (16, 1, 28, 28) if name == "mlpnet" else (16, 3, 32, 32)
    generator = torch.Generator().manual_seed(0)
    images = ImageData(
        torch.randint(256, shape, dtype=torch.uint8, generator=generator),
        torch.randint(10, (16,), generator=generator),
        mean=(0.5,) * shape[1],
        std=(0.5,) * shape[1],
    )

    def trained(seed: int) -> dict[str, torch.Tensor]:
        torch.rand(1)  # neither the state of the global generator nor the first weights matter
        model = network.build()
        recipe = replace(network.recipe, epochs=1, batch_size=8)
        train(model, images, recipe, seed=seed)
        return model.state_dict()

    first, second, other = trained(1), trained(1), trained(2)
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in network_weights(first))


def test_recipe_is_sgd_with_momentum_decay_and_cosine(digits: data.Splits) -> None:
    """Against the formulas, step by step."""
    images = part(digits.train, 96)
    recipe = Recipe(epochs=2, learning_rate=0.1, batch_size=32, momentum=0.8, weight_decay=0.01)
    model = zoo.MLPNet()
    train(model, images, recipe, seed=3)

    reference = zoo.MLPNet()
    initialise(reference, torch.Generator().manual_seed(3))
    weights = list(reference.parameters())
    velocities = [torch.zeros_like(weight) for weight in weights]
    batches = Batches(images, 32, shuffle=True, seed=3)
    step = 0
    for _ in range(2):
        for inputs, targets in batches:
            rate = 0.1 * (1 + torch.cos(torch.tensor(torch.pi * step / 6))) / 2
            loss = -reference(inputs)[torch.arange(32), targets].mean()
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for weight, gradient, velocity in zip(weights, gradients, velocities, strict=True):
                    velocity.mul_(0.8).add_(gradient + 0.01 * weight)
                    weight.sub_(rate * velocity)
            step += 1
    for found, expected in zip(model.parameters(), weights, strict=True):
        assert torch.allclose(found, expected, atol=1e-5)


def test_augmentation_is_used(digits: data.Splits) -> None:
    seen = []

    def augment(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        seen.append(len(images))
        return pad_crop_flip(images, generator)

    train(zoo.MLPNet(), part(digits.train, 200), replace(SHORT, augment=augment))
    assert seen == [128, 72]


def test_progress_modes_and_global_generator(digits: data.Splits) -> None:
    steps: list[tuple[int, int]] = []
    model = zoo.MLPNet().eval()
    before = torch.get_rng_state()
    train(
        model,
        part(digits.train, 200),
        replace(SHORT, epochs=2),
        progress=lambda done, total: steps.append((done, total)),
    )
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert not model.training
    assert torch.equal(torch.get_rng_state(), before)


def test_divergence_is_an_error(digits: data.Splits) -> None:
    with pytest.raises(ChitaError, match=naming("learning_rate", 1e20)):
        train(zoo.MLPNet(), part(digits.train, 1000), replace(SHORT, learning_rate=1e20))


def test_bad_recipes() -> None:
    with pytest.raises(ChitaError, match=naming("epochs", 0)):
        Recipe(epochs=0, learning_rate=0.1)
    with pytest.raises(ChitaError, match=naming("learning_rate", "nan")):
        Recipe(epochs=1, learning_rate=float("nan"))
