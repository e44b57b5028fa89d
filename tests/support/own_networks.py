"""Small networks and data as users have them, named by reference in tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrizations

COUNT, BATCH = 48, 16


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batches(make: Any) -> list[Any]:
    return [make(seeded(number)) for number in range(COUNT // BATCH)]


def images() -> list[tuple[Tensor, Tensor]]:
    """Pictures of 32 x 32 pixels with a label."""

    def make(draw: torch.Generator) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(BATCH, 3, 32, 32, generator=draw)
        return inputs, torch.randint(10, (BATCH,), generator=draw)

    return batches(make)


def sentences() -> list[dict[str, Tensor]]:
    """Token ids with a label for each sentence."""

    def make(draw: torch.Generator) -> dict[str, Tensor]:
        tokens = torch.randint(5, 50, (BATCH, 8), generator=draw)
        return {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "labels": torch.randint(2, (BATCH,), generator=draw),
        }

    return batches(make)


def texts() -> list[dict[str, Tensor]]:
    """Token ids that a language model continues."""
    return [{**batch, "labels": batch["input_ids"]} for batch in sentences()]


def unlabelled() -> list[dict[str, Tensor]]:
    return [{name: batch[name] for name in batch if name != "labels"} for batch in sentences()]


class UNet(nn.Module):
    """Two levels with a skip connection."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, width, 3, padding=1)
        self.inner = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(2 * width, 2, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        high = F.relu(self.down(inputs))
        low = F.relu(self.inner(F.max_pool2d(high, 2)))
        return self.out(torch.cat([high, self.up(low)], 1))


def masks() -> list[tuple[Tensor, Tensor]]:
    """Pictures with a class for each pixel."""

    def make(draw: torch.Generator) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(BATCH, 1, 8, 8, generator=draw)
        return inputs, (inputs[:, 0] > 0).long()

    return batches(make)


class Recurrent(nn.Module):
    """An LSTM with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs, _ = self.lstm(inputs)
        return self.head(outputs[:, -1])


class Encoder(nn.Module):
    """torch's own transformer with a head."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.embed = nn.Linear(4, 8)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(inputs)).mean(1))


def sequences() -> Iterator[tuple[Tensor, Tensor]]:
    """Sequences with a label, generated anew for each pass."""
    for number in range(COUNT // BATCH):
        inputs = torch.randn(BATCH, 6, 4, generator=seeded(number))
        yield inputs, inputs.sum(1)[:, :3].argmax(1)


class TwoInputs(nn.Module):
    """A regression from two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.out = nn.Linear(4, 8), nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, one: Tensor, two: Tensor) -> Tensor:
        return self.out(torch.tanh(self.one(one) + self.two(two)))[:, 0]


def pairs() -> list[tuple[tuple[Tensor, Tensor], Tensor]]:
    def make(draw: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
        one, two = (torch.randn(BATCH, size, generator=draw) for size in (4, 3))
        return (one, two), one.sum(1) * two[:, 0]

    return batches(make)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(outputs, targets)


class Recommender(nn.Module):
    """Embeddings of users and items, and layers above them."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(20, 6), nn.Embedding(30, 6)
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        return self.layers(torch.cat([self.users(users), self.items(items)], 1))[:, 0]


def ratings() -> list[tuple[tuple[Tensor, Tensor], Tensor]]:
    def make(draw: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
        users, items = (torch.randint(many, (BATCH,), generator=draw) for many in (20, 30))
        return (users, items), ((users + items) % 2).float()

    return batches(make)


class Clicks(nn.Module):
    """A loss with logits, given as a class."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets)


def weight_norm() -> nn.Module:
    first = parametrizations.weight_norm(nn.Linear(4, 16))
    return nn.Sequential(first, nn.ReLU(), nn.Flatten(), nn.Linear(96, 3))


def compiled() -> nn.Module:
    layers = nn.Sequential(nn.Flatten(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 3))
    return torch.compile(layers, backend="eager")  # type: ignore[return-value]
