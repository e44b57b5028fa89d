"""The configuration: defaults, the plan of the stages and k."""

from __future__ import annotations

import json
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chita import ChitaError, PruneConfig
from chita.pruning.config import kept_weights
from chita.pruning.schedule import sparsities
from tests.support.messages import naming


@given(st.integers(1, 30_000_000), st.integers(0, 9999))
def test_k_is_the_floor_of_the_product_in_floating_point(p: int, ten_thousandths: int) -> None:
    exact = (1 - Fraction(ten_thousandths, 10_000)) * p
    k = kept_weights(p, ten_thousandths / 10_000)
    assert exact.numerator // exact.denominator - 1 <= k <= exact


@pytest.mark.parametrize(
    ("p", "sparsity", "k"),
    [(32_360, 0.98, 647), (32_360, 0.9, 3235), (268_336, 0.9, 26_833), (10, 0, 10)],
)
def test_k_of_the_papers_networks(p: int, sparsity: float, k: int) -> None:
    assert kept_weights(p, sparsity) == k


def test_the_plan_follows_schedule_and_method() -> None:
    config = PruneConfig(
        sparsity=0.9, schedule="linear", stages=4, start=0.3, hold=0.25, recover=False
    )
    assert config.plan() == sparsities("linear", 0.9, stages=4, start=0.3, hold=0.25)
    assert PruneConfig(sparsity=0.9, method="chita-bso").plan() == [0.9]
    assert PruneConfig(sparsity=0.9, method="magnitude").plan() == [0.9]
    by_default = PruneConfig(sparsity=0.9, recover=False).plan()
    assert by_default == sparsities("polynomial", 0.9, stages=60, start=0.2, hold=0)
    assert by_default == sorted(by_default)
    assert PruneConfig(sparsity=0, recover=False).plan() == [0.0] * 60


@pytest.mark.parametrize(
    "keywords", [{}, {"method": "woodfisher", "block_size": 10}, {"method": "chita-bso"}]
)
def test_blocks_that_talk_need_blocks_and_a_method_of_the_papers_own(
    keywords: dict[str, Any],
) -> None:
    with pytest.raises(ChitaError, match=naming("block_sweeps=1", "block_size", "chita-bso")):
        PruneConfig(sparsity=0.5, block_sweeps=1, **keywords, recover=False)
    assert PruneConfig(sparsity=0.5, block_size=10, block_sweeps=1, recover=False).block_sweeps == 1


def test_methods_are_resolved_with_their_solver() -> None:
    assert PruneConfig(sparsity=0.5, recover=False).resolve_method().name == "auto"
    cd = PruneConfig(sparsity=0.5, method="chita++", solver="cd").resolve_method()
    assert cd.name == "chita++"
    assert cd.algorithm == PruneConfig(sparsity=0.5, method="chita-cd").resolve_method().algorithm


@pytest.mark.parametrize(
    "keywords",
    [
        {"sparsity": 1.0},
        {"sparsity": 0.5, "method": "surgery"},
        {"sparsity": 0.5, "schedule": "cosine"},
        {"sparsity": 0.5, "ridge": "1e-3"},
        {"sparsity": 0.5, "include": 3},
        {"sparsity": 0.5, "allocation": "equal"},
        {"sparsity": 0.5, "allocation": None},
        {"sparsity": 0.5, "allocation": {"fc*": 1.0}},
        {"sparsity": 0.5, "at_least": {"fc*": "0.5"}},
        {"sparsity": 0.5, "at_least": "fc*=0.5"},
        {"sparsity": 0.5, "at_most": {3: 0.5}},
        {"sparsity": 0.5, "memory": "a lot"},
        {"sparsity": 0.5, "storage": "int8"},
        {"sparsity": 0.5, "drop_dead": "no"},
    ],
)
def test_it_is_checked_when_it_is_made(keywords: dict[str, object]) -> None:
    (name, value) = list(keywords.items())[-1]
    with pytest.raises(ChitaError, match=naming(name, repr(value))):
        PruneConfig(**keywords, recover=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["distill", "distill-mse"])
def test_an_accuracy_needs_labels(loss: str) -> None:
    with pytest.raises(
        ChitaError, match=naming("min_accuracy", "labels", f"loss='{loss}'", "max_loss_increase")
    ):
        PruneConfig(sparsity=0.5, loss=loss, min_accuracy=50.0, recover=False)
    PruneConfig(sparsity=0.5, loss=loss, max_loss_increase=0.1, recover=False)


def test_numbers_of_numpy_become_those_of_python() -> None:
    config = PruneConfig(
        sparsity=np.float32(0.5),  # type: ignore[arg-type]
        samples=np.int64(7),  # type: ignore[arg-type]
        ridge=np.float64(0.1),
        seed=np.uint8(3),  # type: ignore[arg-type]
        recover=False,
    )
    assert json.dumps([config.sparsity, config.samples, config.ridge, config.seed])
    assert type(config.seed) is int


def test_the_budget_is_in_bytes() -> None:
    assert PruneConfig(sparsity=0.5, recover=False).memory_bytes is None
    assert PruneConfig(sparsity=0.5, memory="1.5GB", recover=False).memory_bytes == 1_500_000_000
    assert PruneConfig(sparsity=0.5, memory=123, recover=False).memory_bytes == 123


def test_shares_are_kept_as_plain_numbers() -> None:
    config = PruneConfig(
        sparsity=0.5,
        allocation={"a": np.float32(0.5)},
        at_most={"b": np.int64(0)},
        at_least={},
        recover=False,
    )
    assert json.dumps(asdict(config)["allocation"]) == '{"a": 0.5}'
    assert json.dumps(config.at_most) == '{"b": 0.0}'
