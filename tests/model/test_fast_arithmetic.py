"""Faster arithmetic for passes that need no exact outputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from chita.model.fast_arithmetic import (
    LEAST_CAST,
    fast_arithmetic,
    fast_format,
    use_fast_format,
)


def has_bfloat16() -> bool:
    found = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


def type_of_product(parameters: list[nn.Parameter]) -> torch.dtype:
    with fast_arithmetic(torch.device("cpu"), parameters):
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype


def test_large_models_run_in_bfloat16_where_the_processor_has_it() -> None:
    expected = torch.bfloat16 if has_bfloat16() else torch.float32
    assert type_of_product([nn.Parameter(torch.zeros(LEAST_CAST))]) == expected


def test_without_capabilities_of_the_processor_nothing_is_cast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch 2.4 does not report them."""
    parameters = [nn.Parameter(torch.zeros(LEAST_CAST))]
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    assert type_of_product(parameters) == torch.bfloat16
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert type_of_product(parameters) == torch.float32


def test_small_models_and_other_types_keep_their_own() -> None:
    assert type_of_product([nn.Parameter(torch.zeros(LEAST_CAST - 1))]) == torch.float32
    double = nn.Parameter(torch.zeros(LEAST_CAST, dtype=torch.float64))
    assert type_of_product([double]) == torch.float32


def test_images_have_their_channels_last_and_nothing_else_changes() -> None:
    images, tokens = torch.randn(2, 3, 4, 5), torch.arange(6).view(1, 1, 2, 3)
    assert fast_format(images).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(fast_format(images), images)
    assert fast_format(tokens) is tokens
    features = torch.randn(3, 4)
    assert fast_format(features) is features


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kernels_have_their_channels_last_on_a_gpu_with_the_same_values() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2), nn.Conv3d(1, 2, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    use_fast_format(model.cuda())
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    after = model.cpu().state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
