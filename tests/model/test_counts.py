"""Parameters, non-zeros, bytes and multiply-adds."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

import chita
from chita.model.counts import MultiplyAdds, count, multiply_adds
from chita.model.weights import Weights
from chita.report.tables import as_text, counts_table
from tests.support.messages import says
from tests.support.pruning import Again, cut, digits, mlpnet, points, tiny


def by_hand(layer: nn.Conv2d | nn.ConvTranspose2d, x: Tensor) -> int:
    """The terms of all sums of a convolution with unit weights: a loop over the output.

    Padding is added to the input first, since products with it count.
    """
    if isinstance(layer, nn.ConvTranspose2d):
        return x.numel() * layer.weight[0].numel()
    with torch.no_grad():
        layer.weight.fill_(1.0)
        padded = nn.functional.pad(
            torch.ones_like(x), (layer.padding[1],) * 2 + (layer.padding[0],) * 2, value=1.0
        )
        unpadded = nn.functional.conv2d(
            padded, layer.weight, None, layer.stride, 0, layer.dilation, layer.groups
        )
    return int(unpadded.sum())


@settings(max_examples=40, deadline=None)
@given(
    groups=st.sampled_from([1, 2]),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.integers(0, 1),
    transposed=st.booleans(),
    size=st.integers(3, 6),
)
def test_a_convolution_is_counted_term_by_term(
    groups: int, kernel: int, stride: int, padding: int, transposed: bool, size: int
) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(4, 6, kernel, stride=stride, padding=padding, groups=groups)
    x = torch.randn(1, 4, size, size)
    found = multiply_adds(layer, x)
    nonzero = MultiplyAdds(by_hand(layer, x), by_hand(layer, x))
    assert found == nonzero
    with torch.no_grad():
        layer.weight[:, :1] = 0
    share = 1 - 1 / layer.weight.shape[1]
    halved = multiply_adds(layer, x)
    assert halved == MultiplyAdds(nonzero.dense, round(nonzero.pruned * share))


def test_a_layer_counts_each_time_and_for_each_token() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 5)
            self.unused = nn.Linear(5, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(input=self.layer(x))

    model = Twice()
    with torch.no_grad():
        model.layer.weight[:2] = 0
    assert multiply_adds(model, torch.randn(1, 7, 5)) == MultiplyAdds(2 * 7 * 25, 2 * 7 * 15)


class MyConv1D(Conv1D):  # type: ignore[misc]
    """A layer of one's own, which is prunable too."""


@pytest.mark.parametrize("kind", [Conv1D, MyConv1D])
def test_the_conv1d_of_transformers(kind: type[Conv1D]) -> None:
    layer = kind(12, 4)
    assert [weight.name for weight in Weights(layer)] == ["weight"]
    with torch.no_grad():
        layer.weight[0] = 0
    assert multiply_adds(layer, torch.randn(1, 3, 4)) == MultiplyAdds(3 * 48, 3 * 36)


def test_shared_parameters_count_once_and_bytes_follow_the_mask() -> None:
    layer = nn.Linear(16, 4, bias=False).half()
    model = nn.ModuleList([layer, nn.Linear(16, 4, bias=False).half(), nn.Linear(3, 1)])
    model[1].weight = layer.weight
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0, :3] = 1
        model[2].weight.fill_(1)
        model[2].bias.zero_()
    found = count(model)
    assert (found.parameters, found.nonzeros) == (64 + 4, 3 + 3)
    assert found.dense_bytes == 64 * 2 + 4 * 4
    assert found.pruned_bytes == (64 // 8 + 3 * 2) + 3 * 4 + 1  # the dense one stays as it is
    assert found.multiply_adds is None


def test_a_pruning_counts_the_whole_model() -> None:
    result = chita.prune(
        mlpnet(), digits(64), sparsity=0.9, method="chita-bso", samples=32, batch=1, progress=False
    )
    dense = 784 * 40 + 40 * 20 + 20 * 10
    counts = result.counts
    assert (counts.parameters, counts.nonzeros) == (dense, result.nonzeros)
    assert counts.multiply_adds == MultiplyAdds(dense, result.nonzeros)
    assert json.loads(json.dumps(result.to_dict()))["counts"]["multiply_adds"] == {
        "dense": dense,
        "pruned": result.nonzeros,
    }
    (line,) = [line for line in str(result).splitlines() if "multiply-adds" in line]
    assert f"{dense:,}" in line and f"{result.nonzeros:,}" in line


def test_magnitude_counts_multiply_adds_if_it_is_given_data() -> None:
    keywords = {"sparsity": 0.5, "method": "magnitude", "progress": False}
    given_data = chita.prune(tiny(), Again(cut(points(6), 3)), **{"recover": False, **keywords})  # type: ignore[arg-type]
    assert given_data.counts.multiply_adds == MultiplyAdds(72, 36)
    without = chita.prune(tiny(), [], **{"recover": False, **keywords})  # type: ignore[arg-type]
    assert without.counts.multiply_adds is None
    assert "multiply-adds" not in as_text(counts_table(without.counts))


def test_a_model_that_takes_no_single_sample_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Pairs(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(-1, 2)

    with caplog.at_level(logging.WARNING):
        assert count(Pairs(), torch.ones(1, 1)).multiply_adds is None
    assert says(caplog.text, "multiply-adds")
