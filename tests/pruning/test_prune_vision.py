"""Networks in the manner of timm and torchvision, which need no words of their own."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import chita
from chita.curvature.fisher import gradient_matrix
from chita.model.samples.stream import SampleStream
from chita.model.weights import Weights
from tests.curvature.truth import Messages, brute_force
from tests.support.pruning import numbers, seeded


class SamePadding(nn.Conv2d):
    """Pads by itself, as networks that come from TensorFlow do."""

    def forward(self, x: Tensor) -> Tensor:
        x = functional.pad(x, (0, 1, 0, 1))
        return functional.conv2d(x, self.weight, self.bias, self.stride, 0, 1, self.groups)


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, squeeze and excitation, projection."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU())
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.squeeze, self.excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.project = nn.Conv2d(8, 4, 1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.depthwise(self.expand(x))
        scale = self.excite(self.squeeze(hidden.mean((2, 3), keepdim=True)).relu()).sigmoid()
        out: Tensor = x + self.project(hidden * scale)
        return out


class FusedAttention(nn.Module):
    """Queries, keys and values in one Linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).unflatten(2, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.proj(seen.transpose(1, 2).flatten(2)).transpose(1, 2)
        return out.unflatten(2, x.shape[2:])


class Windows(FusedAttention):
    """Attention in windows, which stand where the samples were."""

    def forward(self, x: Tensor) -> Tensor:
        halves = torch.cat(x.chunk(2, dim=3))
        return torch.cat(super().forward(halves).chunk(2), dim=3)


def network(*blocks: nn.Module) -> nn.Module:
    parts: dict[str, nn.Module] = {"stem": SamePadding(3, 4, 2, stride=2)}
    parts |= {f"block{i}": block for i, block in enumerate(blocks)}
    head = {"pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), "drop": nn.Dropout(0.5)}
    return nn.Sequential(OrderedDict({**parts, **head, "fc": nn.Linear(4, 3)})).double()


NETWORKS: dict[str, tuple[Any, str | None]] = {
    "mobile": (lambda: network(InvertedResidual(), InvertedResidual()), None),
    "attention": (lambda: network(FusedAttention()), None),
    "windows": (lambda: network(Windows()), "dimension 0"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_are_right(name: str) -> None:
    build, row_by_row = NETWORKS[name]
    model, x, t = seeded(build), numbers(12, 3, 8, 8), torch.arange(12) % 3
    weights = Weights(model)
    with Messages() as messages:
        found = gradient_matrix(model, weights, SampleStream([(x, t)]), rows=6, batch=2)
    assert [row_by_row in text for text in messages.texts if row_by_row] == [True] * bool(
        row_by_row
    )
    truth, _ = brute_force(model.eval(), weights, x, t, 2)
    torch.testing.assert_close(found.matrix.whole().t(), truth)


@pytest.mark.parametrize("name", NETWORKS)
def test_pruned_without_labels_they_say_nearly_the_same(name: str) -> None:
    build, _ = NETWORKS[name]
    model, by_size = seeded(build), seeded(build)
    x = numbers(400, 3, 8, 8)
    keywords: dict[str, Any] = {"sparsity": 0.5, "batch": 2, "stages": 4, "progress": False}
    result = chita.prune(
        model, list(x.split(10)), loss="distill-mse", **{"recover": False, **keywords}
    )
    chita.prune(by_size, [], method="magnitude", **keywords)
    assert result.nonzeros == result.weights // 2
    dense, unseen = seeded(build).eval(), numbers(200, 3, 8, 8, seed=1)
    with torch.no_grad():
        far, near = ((m.eval()(unseen) - dense(unseen)).square().sum() for m in (by_size, model))
    assert near < 0.7 * far
