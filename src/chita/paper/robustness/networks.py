"""The small networks of `chita bench robustness`, whose architectures are not in the paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from chita.paper.robustness.tasks import DIGITS, LENGTH, MARKER
from chita.zoo.mobilenetv1 import Block, ConvBN

WIDTH, HEADS = 48, 4  # the embedding width and the attention heads of the transformers
PATCH = 7  # the side of a patch, in pixels


class TransformerBlock(nn.Module):
    """Attention and a two-layer MLP, each with LayerNorm before it and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, T, WIDTH) hidden states to the same shape."""
        each = self.queries_keys_values(self.norm1(tokens)).unflatten(2, (3, HEADS, -1))
        seen = scaled_dot_product_attention(*each.permute(2, 0, 3, 1, 4))
        tokens = tokens + self.project(seen.transpose(1, 2).flatten(2))
        hidden: Tensor = tokens + self.down(gelu(self.up(self.norm2(tokens))))
        return hidden


class Encoder(nn.Module):
    """Transformer blocks over embedded tokens, with mean pooling and a linear classifier."""

    def __init__(self, tokens: int, blocks: int) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.zeros(tokens, WIDTH))
        self.blocks = nn.Sequential(*(TransformerBlock() for _ in range(blocks)))
        self.norm = nn.LayerNorm(WIDTH)
        self.fc = nn.Linear(WIDTH, DIGITS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, T, WIDTH) embedded tokens to (B, 10) logits."""
        hidden = self.norm(self.blocks(tokens + self.position))
        logits: Tensor = self.fc(hidden.mean(1))
        return logits


class SequenceTransformer(nn.Module):
    """A BERT-like classifier of token sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(MARKER + 1, WIDTH)
        self.encoder = Encoder(LENGTH, blocks=2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, 16) tokens to (B, 10) logits."""
        logits: Tensor = self.encoder(self.embedding(tokens))
        return logits


class VisionTransformer(nn.Module):
    """A ViT-like classifier of images, with patches of 7 x 7 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, stride=PATCH)
        self.encoder = Encoder((28 // PATCH) ** 2, blocks=3)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 1, 28, 28) images to (B, 10) logits."""
        logits: Tensor = self.encoder(self.patches(images).flatten(2).mT)
        return logits


class DepthwiseNet(nn.Module):
    """A small classifier of digits made of MobileNetV1 blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBN(1, 16, kernel=3, stride=2)
        self.blocks = nn.Sequential(Block(16, 32, 2), Block(32, 64, 1), Block(64, 64, 2))
        self.fc = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 1, 28, 28) images to (B, 10) logits."""
        logits: Tensor = self.fc(self.blocks(self.stem(images)).mean(dim=(2, 3)))
        return logits


def tanh_net() -> nn.Module:
    """Return an MLP with LayerNorm and tanh: (B, 1, 28, 28) images to (B, 10) logits."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(28 * 28, 64),
        nn.LayerNorm(64),
        nn.Tanh(),
        nn.Linear(64, 64),
        nn.LayerNorm(64),
        nn.Tanh(),
        nn.Linear(64, 10),
    )


def signal_net() -> nn.Module:
    """Return a 1-D convolutional network: (B, 1, 64) signals to (B, 6) logits."""
    return nn.Sequential(
        nn.Conv1d(1, 16, 7, stride=2, padding=3),
        nn.ReLU(),
        nn.Conv1d(16, 32, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv1d(32, 32, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(32, 6),
    )
