"""MLPNet: 784-40-20-10, no biases, for MNIST."""

from __future__ import annotations

from torch import Tensor, nn


class MLPNet(nn.Module):
    """Three Linear layers with ReLU between them; the outputs are log-probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(28 * 28, 40, bias=False)
        self.fc2 = nn.Linear(40, 20, bias=False)
        self.fc3 = nn.Linear(20, 10, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, 1, 28, 28) normalised images to (B, 10) log-probabilities."""
        hidden = self.fc1(images.flatten(1)).relu()
        hidden = self.fc2(hidden).relu()
        logits: Tensor = self.fc3(hidden)
        return logits.log_softmax(dim=1)
