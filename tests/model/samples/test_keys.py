"""Keys of samples: what they depend on, and what they do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chita.model.samples.batch import Batch, parse_batch
from chita.model.samples.keys import COLUMNS, KEYS, SampleKeys


def keys_of(inputs: Any, seed: int = 0, targets: Tensor | None = None) -> Tensor:
    size = len(inputs[0] if isinstance(inputs, tuple) else inputs)
    return SampleKeys(seed).of(
        parse_batch(0, (inputs, torch.zeros(size) if targets is None else targets))
    )


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(0, 5), st.randoms(use_true_random=False))
def test_keys_do_not_depend_on_the_batch(size: int, width: int, random: Any) -> None:
    """However samples are ordered and cut into batches, by the same or another object."""
    x = numbers(size, width, 3)
    order = random.sample(range(size), size)
    cut = random.randint(0, size)
    keys = SampleKeys(0)
    apart = [
        keys.of(Batch(((x[part],), x[part]), len(part))) for part in (order[:cut], order[cut:])
    ]
    assert torch.equal(torch.cat(apart), keys_of(x)[order])


def test_views_have_the_keys_of_their_values() -> None:
    x = numbers(6, 8)
    strided = x.t().contiguous().t()
    assert not strided.is_contiguous() and torch.equal(keys_of(strided), keys_of(x))
    assert torch.equal(keys_of(x.repeat_interleave(2, 0)[::2]), keys_of(x))
    assert torch.equal(keys_of(x.clone().requires_grad_()), keys_of(x))


def test_a_wide_sample_after_narrow_ones() -> None:
    """Multipliers are drawn as they are needed, and used a few columns at a time."""
    narrow, wide = numbers(3, 4), numbers(3, COLUMNS + 5)
    keys = SampleKeys(7)
    first = keys.of(parse_batch(0, (narrow, narrow)))
    assert torch.equal(keys.of(parse_batch(0, (wide, wide))), keys_of(wide, seed=7))
    assert torch.equal(keys.of(parse_batch(0, (narrow, narrow))), first)
    wide[0, -1] += 1
    assert (keys.of(parse_batch(0, (wide, wide))) != keys_of(numbers(3, COLUMNS + 5), 7))[0]


def test_targets_do_not_count() -> None:
    x = numbers(5, 3)
    assert torch.equal(keys_of(x, targets=torch.zeros(5)), keys_of(x, targets=torch.arange(5)))
    ids = torch.arange(20).view(4, 5)
    one, other = (
        SampleKeys(0).of(parse_batch(0, {"input_ids": ids, "labels": labels}))
        for labels in (torch.zeros(4), torch.arange(12).view(4, 3))
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    "values",
    [
        numbers(64, 3).half(),
        numbers(64, 3).bfloat16(),
        numbers(64, 3),
        numbers(64, 3).double(),
        torch.view_as_complex(numbers(64, 3, 2)),
        torch.arange(64),
        torch.arange(64).int()[:, None],
        torch.arange(64).to(torch.uint8),
        torch.arange(64)[:, None] >> torch.arange(6) & 1 == 1,
        torch.arange(64) << 40,
        torch.where(torch.arange(64)[:, None] >> torch.arange(6) & 1 == 1, 1.0, -1.0),
    ],
    ids=lambda values: str(values.dtype),
)
def test_other_values_have_other_keys(values: Tensor) -> None:
    keys = keys_of(values)
    assert keys.dtype == torch.int64 and keys.shape == (64,)
    assert len(keys.unique()) == 64
    assert keys.min() >= 0 and keys.max() < KEYS
    assert torch.equal(keys_of(values.clone()), keys)


def test_every_input_counts_and_its_place() -> None:
    x, y = numbers(4, 3), numbers(4, 3, seed=1)
    pairs = [(x, y), (y, x), (x, x), (y, y), (x, torch.zeros(4, 0)), (x.flip(1), y)]
    found = torch.cat([keys_of(pair) for pair in pairs])
    assert len(found.unique()) == len(found)


@pytest.mark.parametrize("shape", [(3, 0), (0, 2), (0, 0), (0,), (2, 0, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bool, torch.complex64])
def test_samples_without_values(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert len(keys_of(torch.zeros(shape, dtype=dtype)).unique()) == min(shape[0], 1)


def text(
    lengths: list[int],
    *,
    width: int,
    left: bool,
    pad: int,
    prefix: str = "",
    mask_type: torch.dtype = torch.int64,
) -> Batch:
    """Token i of sample s is 100 s + i + 1; padding is before or after them."""
    ids = torch.full((len(lengths), width), pad)
    mask = torch.zeros(len(lengths), width, dtype=mask_type)
    for s, length in enumerate(lengths):
        place = slice(width - length, width) if left else slice(0, length)
        ids[s, place] = torch.arange(length) + 100 * s + 1
        mask[s, place] = 1
    return parse_batch(0, {f"{prefix}input_ids": ids, f"{prefix}attention_mask": mask})


@pytest.mark.parametrize("mask_type", [torch.int64, torch.bool, torch.float32])
@pytest.mark.parametrize("prefix", ["", "decoder_"])
@pytest.mark.parametrize(("left", "width", "pad"), [(False, 9, 0), (True, 5, 0), (True, 12, 1)])
def test_padding_does_not_count(
    left: bool, width: int, pad: int, prefix: str, mask_type: torch.dtype
) -> None:
    lengths = [5, 1, 3, 4]
    options: dict[str, Any] = {"prefix": prefix, "mask_type": mask_type}
    expected = SampleKeys(0).of(text(lengths, width=5, left=False, pad=0, **options))
    padded = text(lengths, width=width, left=left, pad=pad, **options)
    assert torch.equal(SampleKeys(0).of(padded), expected)
    assert len(expected.unique()) == 4


def test_what_a_mask_leaves_does_count() -> None:
    """The number of tokens, too: a shorter text is another one."""
    longer, shorter = (
        SampleKeys(0).of(text([length, 2], width=5, left=False, pad=0)) for length in (5, 4)
    )
    assert longer[0] != shorter[0] and longer[1] == shorter[1]
    batch = text([5, 2], width=5, left=False, pad=0)
    batch.inputs["input_ids"][0, 4] += 1  # type: ignore[call-overload]
    assert SampleKeys(0).of(batch)[0] != longer[0]


@pytest.mark.parametrize(
    "values",
    [torch.arange(20_000)[:, None], torch.linspace(0, 1, 20_000)[:, None], numbers(20_000, 4)],
    ids=["counts", "a line", "normal"],
)
@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_keys_are_uniform(values: Tensor, seed: int) -> None:
    """The share of the keys below a bound is the bound, to five standard deviations."""
    keys = keys_of(values, seed=seed).double() / KEYS
    for bound in (0.01, 0.1, 0.15, 0.25, 0.5, 0.9):
        error = (bound * (1 - bound) / len(keys)) ** 0.5
        assert abs(float((keys < bound).double().mean()) - bound) < 5 * error


def test_zeros_are_no_exception() -> None:
    """They must not be the first sample to hold out whatever the seed is."""
    found = torch.cat([keys_of(torch.zeros(1, 3), seed=seed) for seed in range(100)])
    assert len(found.unique()) == 100
    assert abs(float(found.double().mean()) / KEYS - 0.5) < 0.15


def test_seeds_give_independent_orders() -> None:
    x = numbers(20_000, 4)
    keys = torch.stack([keys_of(x, seed=seed).double() for seed in range(3)])
    correlation = torch.corrcoef(keys) - torch.eye(3)
    assert correlation.abs().max() < 5 / 20_000**0.5
